"""`options={"numerics": "eager"}`: what it refuses, what it is part of, and what says that it is on."""

from __future__ import annotations

import pytest
import torch

import lampwork
from lampwork import _torch
from lampwork.backends import BACKENDS
from lampwork.backends.exact import CPU, CUDA, Call, is_exact
from lampwork.capture.capture import capture
from lampwork.config import make_settings
from lampwork.errors import OptionError
from lampwork.graph.prepare import passes, prepare
from lampwork.ir.loops import LoopNest
from lampwork.ir.program import Extern
from lampwork.ir.size import Symbol
from lampwork.ir.verify import verify_lowered
from lampwork.lower import lower
from lampwork.runtime.cache.entries import key_of
from tests.cuda_stand_in import cuda_stand_in

SINGLE, HALF, WHOLE, BOOL = (frozenset({each}) for each in ("float32", "bfloat16", "int64", "bool"))


def gelu(x):
    return torch.nn.functional.gelu(x) * 2


@pytest.mark.parametrize("options, said", [
    ({"numerics": "strict"}, "one of 'default', 'eager'"),
    ({"numerics": True}, "must be of type str"),
    ({"numerics": "eager", "freeze": True}, "leave one of the two options out"),
])  # fmt: skip
def test_bad_values_are_refused_with_a_remedy(options, said):
    with pytest.raises(OptionError, match=said):
        lampwork.compile(gelu, options=options)


def test_back_ends_of_others_promise_no_bits():
    with pytest.raises(OptionError, match="leave one out"):
        lampwork.compile(gelu, options={"numerics": "eager"}, backend="eager")
    with pytest.raises(OptionError, match="leave one out"):
        lampwork.compile(gelu, options={"numerics": "eager"}, backend=lambda module, inputs: module.forward)


def test_stored_entries_are_of_one_numerics(monkeypatch):
    default, exact = make_settings(), make_settings(options={"numerics": "eager"})
    key = key_of(gelu, exact)
    assert key != key_of(gelu, default)
    kept = key_of(gelu, default)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "another instruction set")
    assert key_of(gelu, exact) != key  # eager's kernels are others there
    assert key_of(gelu, default) == kept


def test_explanations_say_that_it_is_on():
    x = torch.randn(8, 8)
    explanation = lampwork.explain(lampwork.compile(gelu, options={"numerics": "eager"}), x)
    assert "numbers are eager's bit by bit" in explanation["summary"]
    assert "aten::gelu.default" in explanation["summary"]
    assert explanation.to_dict()["numerics"] == "eager"
    assert "eager&#x27;s bits" in explanation.html() or "eager's bits" in explanation.html()
    assert "bit by bit" not in lampwork.explain(gelu, x)["summary"]


@pytest.mark.parametrize("device", list(BACKENDS))
def test_passes_that_round_otherwise_are_left_out(device):
    exact = [getattr(each, "__name__", "") for each in passes(make_settings(options={"numerics": "eager"}), device)]
    allowed = {
        "remove_dead",
        "embed_literals",
        "place_constants",
        "share_repeated_work",
        "remove_no_ops",
        "separate_outputs",
    }
    assert set(exact) <= allowed
    assert len(passes(make_settings(), device)) > len(exact)


def test_vendor_products_stay_eagers_calls():
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256))
    x = torch.randn(512, 256)
    exact = lampwork.compile(model, options={"numerics": "eager"})
    with torch.no_grad():
        assert torch.equal(exact(x), model(x))
    assert dict(lampwork.stats(exact)["extern_calls"]) == {"aten::addmm.default": 2, "aten::gelu.default": 1}


@pytest.mark.parametrize("table", [CPU, CUDA])
def test_rows_hold_for_their_types_and_arguments_alone(table):
    assert is_exact(table, "aten::add.Tensor", Call(SINGLE, SINGLE, (None, None)))
    assert is_exact(table, "aten::add.Tensor", Call(HALF, HALF, (None, None), {"alpha": 1}))
    scaled = Call(HALF, HALF, (None, None), {"alpha": 0.3})
    assert is_exact(table, "aten::add.Tensor", scaled, contracts=True) == (table is CUDA)
    assert not is_exact(table, "aten::add.Tensor", Call(SINGLE, SINGLE, (None, None), {"alpha": 0.3}), contracts=False)
    assert not is_exact(table, "aten::add.Tensor", Call(HALF | WHOLE, HALF, (None, None)))
    assert is_exact(table, "aten::_to_copy.default", Call(SINGLE, HALF))
    assert is_exact(table, "aten::_to_copy.default", Call(SINGLE, BOOL))
    assert not is_exact(table, "aten::_to_copy.default", Call(SINGLE, WHOLE))
    assert not is_exact(table, "aten::_to_copy.default", Call(WHOLE, HALF))
    assert is_exact(table, "aten::exp.default", Call(SINGLE, SINGLE)) == (table is CUDA)
    assert not is_exact(table, "aten::sum.default", Call(SINGLE, SINGLE))


def test_rows_of_gpus():
    assert is_exact(CUDA, "aten::addcmul.default", Call(SINGLE, SINGLE, (None, None, None)), contracts=True)
    scaled = Call(SINGLE, SINGLE, (None, None, None), {"value": 0.3})
    assert not is_exact(CUDA, "aten::addcmul.default", scaled, contracts=True), "another product is rounded first"
    assert is_exact(CUDA, "aten::div.Tensor", Call(SINGLE, SINGLE, (None, 0.3)))
    varies = Call(SINGLE, SINGLE, (None, Symbol("s0")))
    assert not is_exact(CUDA, "aten::div.Tensor", varies), "eager multiplies by the inverse of a number"
    assert is_exact(CUDA, "aten::gelu.default", Call(SINGLE, SINGLE, (None,), {"approximate": "tanh"}), contracts=True)
    assert not is_exact(CUDA, "aten::gelu.default", Call(SINGLE, SINGLE, (None,)), contracts=True)
    for name in ("lerp.Tensor", "sum.default", "gelu_backward.default", "elu_backward.default"):
        assert not is_exact(CUDA, f"aten::{name}", Call(SINGLE, SINGLE), contracts=True)


def test_sums_of_products_are_eagers_on_builds_that_round_twice(monkeypatch):
    """On a build that does not contract, rows that need it are calls."""
    monkeypatch.setattr(_torch, "contracts_products", lambda kind="cpu": False)
    compiled = lampwork.compile(
        lambda a, b: torch.addcmul(a, b, b) + torch.lerp(a, b, 0.1), options={"numerics": "eager", "cache": False}
    )
    compiled(torch.randn(9), torch.randn(9))
    assert set(lampwork.stats(compiled)["extern_calls"]) == {"aten::addcmul.default", "aten::lerp.Scalar"}


def on_a_gpu(program, *args):
    """The calls of ATen of a program on a GPU, and how many operators became loops."""
    settings = make_settings(mode="max-autotune", options={"numerics": "eager"})
    with torch.no_grad(), cuda_stand_in():
        region = capture(program, args, {}, settings)
        found = lower(prepare(region, settings), settings)
    verify_lowered(found)
    calls = [item.op.removeprefix("aten::") for item in found.items if isinstance(item, Extern)]
    return calls, sum(isinstance(item, LoopNest) for item in found.items)


def test_programs_on_gpus_call_what_is_no_row():
    x = torch.randn(4, 8)
    assert on_a_gpu(lambda x: torch.relu(x * 0.5 + x) - x.abs(), x) == ([], 5)
    assert on_a_gpu(lambda x: torch.exp(x / 3).sqrt(), x) == ([], 3)
    assert on_a_gpu(lambda x: torch.addcmul(x, x, x, value=0.3), x) == (["addcmul.default"], 0)
    assert on_a_gpu(lambda x: torch.nn.functional.gelu(x @ x.t()) + 1, x) == (["mm.default", "gelu.default"], 1)
    assert on_a_gpu(lambda x: torch.nn.functional.dropout(x, 0.1), x)[0] == ["native_dropout.default"]
    assert on_a_gpu(lambda x: torch.nn.functional.layer_norm(x, (8,)), x)[0] == ["native_layer_norm.default"]


def test_operators_on_lists_are_called_on_gpus():
    def program(x, y, z):
        torch._foreach_addcdiv_([x, y], [z, z], [z, z], [2.0, 3.0])
        return torch._foreach_norm([x, y])

    calls, _ = on_a_gpu(program, torch.randn(8), torch.randn(8), torch.randn(8))
    assert calls == ["_foreach_addcdiv.ScalarList", "_foreach_norm.Scalar"]
