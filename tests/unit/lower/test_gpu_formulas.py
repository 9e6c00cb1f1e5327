"""The formulas that kernels for GPUs have under numerics="eager": here by kernels for the CPU, near to ATen's there. (Their
bits are tried on a GPU, by `tests.numerics.candidates`.)"""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.nn import functional as F

import lampwork
from lampwork.backends import BACKENDS
from lampwork.lower.lower import Lowering
from lampwork.lower.rules import GPU_FORMULAS
from tests.numerics.candidates import _Everything

aten = torch.ops.aten
PROGRAMS = {
    "aten::div.Tensor": (aten.div.Tensor, lambda x: (x, 0.3)), "aten::div.Scalar": (aten.div.Scalar, lambda x: (x, 3)),
    "aten::true_divide.Tensor": (aten.true_divide.Tensor, lambda x: (x, x + 5)),
    "aten::add.Tensor": (lambda x, y: aten.add.Tensor(x, y, alpha=0.3), lambda x: (x, x * x)),
    "aten::add.Scalar": (lambda x: aten.add.Scalar(x, 2, 0.3), lambda x: (x,)),
    "aten::sub.Tensor": (lambda x, y: aten.sub.Tensor(x, y, alpha=-2), lambda x: (x, x * x)),
    "aten::sub.Scalar": (lambda x: aten.sub.Scalar(x, 2, 0.3), lambda x: (x,)),
    "aten::sigmoid.default": (aten.sigmoid.default, lambda x: (x,)), "aten::silu.default": (aten.silu.default, lambda x: (x,)),
    "aten::silu_backward.default": (aten.silu_backward.default, lambda x: (x, x * x)),
    "aten::sigmoid_backward.default": (aten.sigmoid_backward.default, lambda x: (x, x.sigmoid())),
    "aten::tanh_backward.default": (aten.tanh_backward.default, lambda x: (x, x.tanh())),
    "aten::gelu.default": (aten.gelu.default, lambda x: (x,)), "gelu tanh": (lambda x: aten.gelu.default(x, approximate="tanh"), lambda x: (x,)),
    "aten::gelu_backward.default": (aten.gelu_backward.default, lambda x: (x * x, x)),
    "gelu_backward tanh": (lambda g, x: aten.gelu_backward.default(g, x, approximate="tanh"), lambda x: (x * x, x)),
    "aten::addcdiv.default": (lambda x: aten.addcdiv.default(x, x, x * x + 1, value=0.3), lambda x: (x,)),
    "aten::hardsigmoid.default": (aten.hardsigmoid.default, lambda x: (x,)),
    "aten::hardswish.default": (aten.hardswish.default, lambda x: (x,)),
}  # fmt: skip


def test_each_is_tried():
    assert set(GPU_FORMULAS) <= set(PROGRAMS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", PROGRAMS)
def test_formula(name, dtype, monkeypatch):
    monkeypatch.setitem(BACKENDS, "cpu", dataclasses.replace(BACKENDS["cpu"], exact=_Everything()))
    monkeypatch.setattr(Lowering, "rule_of", lambda self, what: GPU_FORMULAS.get(what.name) or what.rule)
    program, made = PROGRAMS[name]
    given = made(torch.linspace(-6, 6, 997).to(dtype))
    compiled = lampwork.compile(lambda *given: program(*given), options={"numerics": "eager", "cache": False})
    expected = program(*[each.double() if isinstance(each, torch.Tensor) else each for each in given]).to(dtype)
    limit = {2: {"rtol": 1e-2, "atol": 4e-3}, 4: {"rtol": 1e-4, "atol": 4e-5}}.get(dtype.itemsize, {})
    torch.testing.assert_close(compiled(*given), expected, **limit)
    assert not lampwork.stats(compiled)["extern_calls"]


def _with_numerics(monkeypatch, **numerics):
    here = BACKENDS["cpu"]
    changed = dataclasses.replace(here, numerics=dataclasses.replace(here.numerics, **numerics))
    monkeypatch.setitem(BACKENDS, "cpu", changed)


@pytest.mark.parametrize("function", [F.hardswish, F.hardsigmoid])
@pytest.mark.parametrize("rounds", [False, True])
def test_a_sixth_of_float64_is_rounded_to_float32_on_a_gpu(function, rounds, monkeypatch):
    _with_numerics(monkeypatch, rounds_sixths=rounds)
    assert BACKENDS["cuda"].numerics.rounds_sixths
    x = torch.linspace(-5, 5, 101, dtype=torch.float64)
    whole = (x + 3).clamp(0, 6) * (x if function is F.hardswish else 1)
    sixth = torch.tensor(1.0 / 6.0, dtype=torch.float32).item()
    expected = whole * sixth if rounds else whole / 6
    found = lampwork.compile(lambda x: function(x), options={"cache": False})(x)
    torch.testing.assert_close(found, expected, rtol=1e-15, atol=0)


@pytest.mark.parametrize("operator", [torch.addcmul, torch.addcdiv])
def test_a_product_is_scaled_as_a_whole_on_a_gpu(operator, monkeypatch):
    """2e38 * 10 is out of range before it is made a tenth; ten times a tenth of 2e38 is not."""
    x, y = torch.full((40,), 2e38), torch.full((40,), 10.0 if operator is torch.addcmul else 0.1)
    program = lambda x, y: operator(-x, x, y, value=0.1)
    assert lampwork.compile(program, options={"cache": False})(x, y).isfinite().all()
    _with_numerics(monkeypatch, scales_products=True)
    assert BACKENDS["cuda"].numerics.scales_products
    lampwork.reset()
    assert lampwork.compile(program, options={"cache": False})(x, y).isinf().all()


@pytest.mark.parametrize("numerics", ["default", "eager"])
def test_lerp_ends_at_zeros_of_their_sign(numerics, monkeypatch):
    if numerics == "eager":  # as on a GPU
        _with_numerics(monkeypatch, lerps_subtract=True)
    assert BACKENDS["cuda"].numerics.lerps_subtract
    ends = torch.tensor([-0.0, 0.0, 2.0] * 11)
    options = {"cache": False, "numerics": numerics}
    found = lampwork.compile(lambda x: torch.lerp(x, x, 1.0), options=options)(ends)
    assert torch.equal(found, ends) and torch.equal(found.signbit(), ends.signbit())


def test_infinite_weights_of_a_batch_norm_on_a_gpu(monkeypatch):
    """What the mean leaves over, times an infinity, was an infinity of the other sign beside that of the difference."""
    _with_numerics(monkeypatch, shifts_once=False, keeps_rest_of_means=True)
    assert not BACKENDS["cuda"].numerics.shifts_once
    x = torch.randn(17, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) + 1000
    weight, bias = torch.full((2,), torch.inf, dtype=torch.float64), torch.tensor([0.5, -2.0], dtype=torch.float64)
    program = lambda x, weight, bias: F.batch_norm(x, None, None, weight, bias, training=True)
    found = lampwork.compile(program, options={"cache": False})(x, weight, bias)
    expected = (x - x.mean((0, 2), keepdim=True)).sign() * torch.inf
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
