"""Shape rules against eager: dtype, shape and strides of every result, on PyTorch's own operator samples."""

from __future__ import annotations

import collections
import os

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from lampwork import _torch
from lampwork.fakes import shapes
from lampwork.fakes.evaluate import evaluate
from lampwork.fakes.fake import Unsupported, make_fake
from lampwork.fakes.operators import operator
from lampwork.fakes.rules import recurrent
from lampwork.fakes.shapes import infer
from tests.sampled import one_of
from tests.unit.fakes.operator_calls import backward_calls_of, calls_of, layouts

#: LAMPWORK_ALL_SAMPLES=1 takes five minutes.
ALL = os.environ.get("LAMPWORK_ALL_SAMPLES") == "1"
DTYPES = (torch.float32, torch.int64, *((torch.bfloat16, torch.bool, torch.complex64) if ALL else ()))
SAMPLES = 5 if ALL else 2


@pytest.fixture
def rules_alone(monkeypatch):
    """A rule that fails by accident is an error here, and nothing hides behind the meta kernels."""
    monkeypatch.setattr(shapes, "_STRICT_RULES", True)
    monkeypatch.setattr(shapes, "infer_by_meta_kernel", leave)


class Left(Exception):
    """The rule leaves the case to the meta kernel."""


def leave(op, args, kwargs):
    raise Left


def _map(value, change):
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)(_map(each, change) for each in value)
    return value


def facts(value):
    """What a rule must get right. Random and uninitialised contents do not matter."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), tuple(value.stride())
    if isinstance(value, (list, tuple)):
        return [facts(each) for each in value]
    return value


def check(func, args, kwargs):
    """None if the rule agrees with eager or leaves the case to the meta kernel, else what differs."""
    try:
        with torch.no_grad():
            expected = func(*args, **kwargs)
    except (RuntimeError, NotImplementedError, IndexError, ValueError):
        return None
    try:
        answer = infer if operator(func).kind == "inplace" else evaluate
        actual = answer(func, _map(args, make_fake), {key: _map(value, make_fake) for key, value in kwargs.items()})
    except Left:
        return "left to the meta kernel"
    except Unsupported:  # lazily conjugated inputs, boolean masks as indices
        return None
    if facts(actual) != facts(expected):
        return f"rule {facts(actual)}, eager {facts(expected)}"
    return None


def arguments(value):
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype)[6:]}{list(value.shape)}{list(value.stride())}"
    if isinstance(value, (list, tuple)):
        return "(" + ", ".join(arguments(each) for each in value) + ")"
    return repr(value)


@pytest.mark.parametrize("info", one_of(2, op_db), ids=lambda info: info.formatted_name)
def test_rules_give_eager_metadata(info, rules_alone):
    failures, counts = [], collections.Counter()
    for dtype in DTYPES:
        if dtype not in info.dtypes:
            continue
        for func, args, kwargs in calls_of(info, dtype, SAMPLES):
            for layout, changed, named in layouts(args, kwargs):
                difference = check(func, changed, named)
                counts[difference is None] += 1
                if difference and not difference.startswith("left"):
                    failures.append(f"{func} {layout} {arguments(changed)} {named}: {difference}")
    assert not failures, "\n".join(failures[:10])


DIFFERENTIABLE = [info for info in op_db if info.supports_autograd and torch.float32 in info.dtypes]


@pytest.mark.parametrize("info", one_of(2, DIFFERENTIABLE), ids=lambda info: info.formatted_name)
def test_rules_give_eager_metadata_of_derivatives(info, rules_alone):
    failures = []
    for func, args, kwargs in backward_calls_of(info, SAMPLES):
        for layout, changed, named in layouts(args, kwargs):
            difference = check(func, changed, named)
            if difference and not difference.startswith("left"):
                failures.append(f"{func} {layout} {arguments(changed)} {named}: {difference}")
    assert not failures, "\n".join(failures[:10])


def test_rules_know_common_cases(rules_alone):
    """The cases that models are made of are answered by rules: none of them may go to the slow meta kernels."""
    x, w, b = torch.randn(4, 8), torch.randn(16, 8), torch.randn(16)
    image, kernel = torch.randn(2, 3, 8, 8), torch.randn(5, 3, 3, 3)
    aten = torch.ops.aten
    for func, args in [
        (aten.addmm.default, (b, x, w.t())), (aten.add.Tensor, (x, 1)), (aten.gelu.default, (x,)),
        (aten.native_layer_norm.default, (x, [8], None, None, 1e-5)), (aten._softmax.default, (x, -1, False)), (aten._safe_softmax.default, (x.transpose(0, 1), -1)),
        (aten.convolution.default, (image, kernel, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)),
        (aten.embedding.default, (w, torch.zeros(2, 3, dtype=torch.int64))), (aten.bmm.default, (image[0], image[0])),
        (aten.mean.dim, (x, [-1], True)), (aten.cat.default, ([x, x], 1)), (aten.index.Tensor, (x, [torch.tensor([0])])),
    ]:  # fmt: skip
        assert check(func, args, {}) is None, func


@pytest.mark.parametrize(("kind", "has_channels_last"), [
    ("plain", False), ("strided", False), ("groups", False), ("transposed", False), ("1x1", False),
    ("plain", True), ("strided", True), ("groups", True),
])  # fmt: skip
def test_rules_know_derivatives_of_convolutions(kind, has_channels_last, rules_alone):
    """Their meta kernel imports sympy."""
    aten = torch.ops.aten
    kernel = {"groups": (6, 2, 3, 3), "1x1": (6, 4, 1, 1), "transposed": (4, 6, 3, 3)}.get(kind, (6, 4, 3, 3))
    strides, groups = [2, 2] if kind == "strided" else [1, 1], 2 if kind == "groups" else 1
    geometry = (strides, [1, 1], [1, 1], kind == "transposed", [0, 0], groups)
    x, w = torch.randn(2, 4, 8, 8), torch.randn(kernel)
    if has_channels_last:
        x, w = (each.contiguous(memory_format=torch.channels_last) for each in (x, w))
    gradient = torch.ones_like(aten.convolution(x, w, None, *geometry))
    for mask in ([True, True, True], [False, True, False]):
        assert check(aten.convolution_backward.default, (gradient, x, w, [6], *geometry, mask), {}) is None
    with pytest.raises(shapes.Unknown):  # gradients of another shape are left to the meta kernel
        shapes.rule_of("aten::convolution_backward")(gradient[:, :1], x, w, [6], *geometry, mask)


#: Composite operators that a GPU has a kernel of its own for, which eager calls there and capture records.
KERNELS_OF_GPUS = {torch.ops.aten._fused_rms_norm.default, torch.ops.aten.mish_backward.default}


def test_every_rule_is_for_an_operator_that_is_asked():
    """A rule for a view or in-place operator would never be looked up, nor for a composite one without a kernel."""
    assert shapes.rule_of("aten::sigmoid_backward")  # loads those of backward passes
    for name in shapes.RULES:
        overload = _torch.overload(name)
        found = operator(overload)
        if overload in KERNELS_OF_GPUS:
            assert found.kind == "composite"
            assert _torch.has_kernel(overload, "CUDA") or not torch.backends.cuda.is_built()
            continue
        # Some in-place operators have fresh results too: batch norm with running statistics.
        assert found.kind == "functional" or (found.kind == "inplace" and not all(found.returns_written)), overload


def test_meta_kernels_leave_dynamo_unloaded():
    import subprocess
    import sys

    program = """
import sys, torch
from lampwork.fakes.evaluate import evaluate
from lampwork.fakes.fake import make_fake
x = make_fake(torch.randn(3, 4))
print(evaluate(torch.ops.aten.special_zeta.default, (x, x), {}).shape)
print(evaluate(torch.ops.aten._cdist_forward.default, (x, x, 2.0, None), {}).shape)
assert "torch._dynamo" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_unknown_operator_is_a_documented_error():
    library = torch.library.Library("lampwork_test", "DEF")
    library.define("opaque(Tensor x) -> Tensor")
    library.impl("opaque", lambda x: x.clone(), "CPU")
    with pytest.raises(Unsupported, match="no meta kernel"):
        evaluate(torch.ops.lampwork_test.opaque.default, (make_fake(torch.ones(2)),), {})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_an_lstm_are_in_single_precision(dtype):
    """The kernel for half types runs on few processors; the other one shows shapes and strides."""
    length, batch, size, hidden = 5, 3, 6, 8
    torch.manual_seed(0)
    shapes_ = [(length, batch, size), (4 * hidden, size), (4 * hidden, hidden), (4 * hidden,), (4 * hidden,)]
    x, w0, w1, w2, w3 = (torch.randn(shape, dtype=dtype) for shape in shapes_)
    hx, cx = torch.zeros(1, batch, hidden, dtype=dtype), torch.zeros(1, batch, hidden, dtype=dtype)
    rest = (2, hidden, 1, True, False, False)
    y, hy, cy = (torch.randn(shape, dtype=dtype) for shape in ((length, batch, hidden), hx.shape, cx.shape))
    space = torch.empty(0, dtype=torch.uint8)
    if dtype is torch.float32:
        with torch.enable_grad():
            y, hy, cy, space = torch.ops.aten.mkldnn_rnn_layer(x, w0, w1, w2, w3, hx, cx, False, [], *rest, True)
    args = (x, w0, w1, w2, w3, hx, cx, y, hy, cy, y, hy, cy, False, 2, hidden, 1, True, True, False, [], False, space)
    op = torch.ops.aten.mkldnn_rnn_layer_backward.default
    found = recurrent.mkldnn_rnn_layer_backward(*args)
    assert [each.dtype for each in found] == [torch.float32] * 7
    if dtype is torch.float32:
        for spec, eagers in zip(found, op(*args), strict=True):
            assert tuple(spec.shape) == tuple(eagers.shape) and tuple(spec.strides) == eagers.stride()
