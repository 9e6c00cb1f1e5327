"""Lowering apart from single operators: checks, half types, results and writes, externs, literals."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from lampwork.config import Settings
from lampwork.debug.interpret_lowered import interpret_lowered
from lampwork.errors import CompileError
from lampwork.ir.loops import Compute, LoopNest
from lampwork.ir.program import Check, Extern, FromInput, ViewOfInput
from lampwork.ir.region import AliasOfInput, FromGraph
from lampwork.ir.verify import VerifyError, verify_lowered
from lampwork.lower import lower
from tests.unit.lower.graphs import assert_like_eager, functional_graph, lowered_of


def run(function, *arguments):
    return interpret_lowered(lowered_of(function, arguments), arguments)


# Errors eager raises ----------------------------------------

X = torch.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize(
    "function, bad, good",
    [
        (lambda x, i: F.embedding(i, x), [[0, 3]], [[0, 2]]),
        (lambda x, i: F.embedding(i, x), [[-1]], [[1]]),
        (lambda x, i: x[i], [3], [-3]),
        (lambda x, i: x[i], [-4], [2]),
        (lambda x, i: x[:, i], [0, 4], [0, -4]),
        (lambda x, i: x.index_select(0, i), [3], [2]),
        (lambda x, i: x.gather(1, i), [[4]], [[3]]),
        (lambda x, i: x.scatter(1, i, 1.0), [[-1]], [[3]]),
        (lambda x, i: x.scatter_add(1, i, x), [[4]], [[0]]),
        (lambda x, i: x.index_put((i,), x[:1]), [5], [-1]),
        (lambda x, i: F.cross_entropy(x, i), [0, 1, 4], [0, 1, -100]),
        (lambda x, i: x.long() // i, [[1], [0], [1]], [[1], [-2], [3]]),
        (lambda x, i: x.long() % i, [0], [3]),
        (lambda x, i: torch.div(x.long(), i, rounding_mode="trunc"), [0], [-3]),
    ],
)
def test_out_of_range_raises_as_eager(function, bad, good):
    good_index, bad_index = torch.tensor(good), torch.tensor(bad)
    torch.testing.assert_close(run(function, X, good_index)[0], function(X, good_index))
    with pytest.raises((IndexError, RuntimeError)) as eager:
        function(X, bad_index)
    lowered = lowered_of(function, (X, good_index if good_index.shape == bad_index.shape else bad_index))
    assert any(isinstance(item, Check) for item in lowered.items)
    with pytest.raises(eager.type):
        interpret_lowered(lowered, (X, bad_index))


def test_provable_indices_need_no_check():
    lowered = lowered_of(lambda w: F.embedding(torch.arange(3), w), (X,))
    assert not any(isinstance(item, Check) for item in lowered.items)
    lowered = lowered_of(lambda w: F.embedding(torch.arange(4)[1:], w), (X,))
    assert any(isinstance(item, Check) for item in lowered.items)


def test_constant_divisors_need_no_check():
    assert not any(isinstance(item, Check) for item in lowered_of(lambda x: x.long() // 3, (X,)).items)


# NaN, infinities, signed zeros ----------------------------------------

SPECIAL = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.5, -1.5])


@pytest.mark.parametrize(
    "function",
    [
        F.relu, F.relu6, F.hardtanh, F.leaky_relu, F.elu, F.silu, F.softplus, F.hardswish, F.softshrink,
        F.hardshrink, F.logsigmoid, torch.sign, torch.frac, torch.isfinite, torch.nan_to_num,
        lambda x: x.clamp(-1, 1), lambda x: x.clamp(max=0), lambda x: torch.maximum(x, x.flip(0)),
        lambda x: torch.fmin(x, x.flip(0)), lambda x: x.amax(), lambda x: x.max(0), lambda x: x.argmin(),
        lambda x: torch.where(x > 0, x, x.new_zeros(())), lambda x: x.masked_fill(x.isnan(), 2.0), lambda x: x**2,
        lambda x: x**0.5, lambda x: x**-1, lambda x: x % 2, lambda x: x // 0.5, lambda x: torch.fmod(x, 2),
        lambda x: x.softmax(0), lambda x: x.logsumexp(0), lambda x: torch.logaddexp(x, x), lambda x: x.any(),
        lambda x: (x[3:] * x[1]).sum(), lambda x: x.bool(), lambda x: x == x, lambda x: torch.signbit(x),
    ],
)  # fmt: skip
def test_special_values(function):
    assert_like_eager(function, SPECIAL)


def test_gelu_of_infinity_is_infinity():
    """As ATen's scalar kernel gives; its vectorised one gives NaN."""
    assert_like_eager(F.gelu, torch.tensor([float("inf")]))
    assert_like_eager(F.gelu, torch.tensor([float("nan"), -0.0, 1.5]))


def test_masked_rows():
    x = torch.full((2, 3), -float("inf"))
    x[1, 1] = 1.0
    assert_like_eager(lambda x: torch.ops.aten._safe_softmax(x, -1), x)
    assert_like_eager(lambda x: x.softmax(-1), x)


# Half types ----------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_compute_in_float32(dtype):
    x = torch.randn(4, 16).to(dtype)
    lowered = assert_like_eager(lambda x: F.gelu(x * 1.5 + x), x, rtol=2e-2, atol=2e-2)
    for nest in lowered.items:
        assert isinstance(nest.store.value, Compute) and nest.store.value.op == "cast"
        assert nest.store.value.args[0].dtype == "float32"
    lowered = assert_like_eager(lambda x: x.sum(-1), x, rtol=2e-2, atol=2e-2)
    assert lowered.items[0].reduction.dtype == "float32"


# Results and writes ----------------------------------------


def test_results_own_their_memory():
    x = torch.randn(3, 4)
    functional = functional_graph(lambda x: (x + 1, x.t()), (x,))
    lowered = lower(functional, Settings())
    verify_lowered(lowered)
    first, second = interpret_lowered(lowered, (x,))
    assert torch.equal(second, x.t()) and second.stride() == (1, 4)
    assert second.data_ptr() != x.data_ptr()


def test_aliases_views_and_writes():
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    functional = functional_graph(lambda x, y: (x + y, x), (x, y))
    # x, y = y-values and x + y: a swap must read both before it writes either.
    functional = dataclasses.replace(
        functional,
        results=(
            AliasOfInput(0),
            AliasOfInput(0, ((4, 3), (1, 4), 0)),
            FromGraph(0),
            FromGraph(0, ((4, 3), (1, 4), 0)),
        ),
        writes=((0, 0), (1, 1)),
    )
    lowered = lower(functional, Settings())
    verify_lowered(lowered)
    assert isinstance(lowered.results[0], FromInput) and isinstance(lowered.results[1], ViewOfInput)
    a, b = x.clone(), y.clone()
    same, transposed, total, turned = interpret_lowered(lowered, (a, b))
    assert same is a and torch.equal(a, x + y) and torch.equal(b, x)
    assert torch.equal(transposed, a.t()) and torch.equal(turned, (x + y).t())
    assert torch.equal(total, x + y)


def test_one_buffer_never_backs_two_results():
    x = torch.randn(3, 4)
    functional = functional_graph(lambda x: (x + 1,), (x,))
    (output,) = (node for node in functional.graph.nodes if node.op == "output")
    output.args = ((output.args[0][0], output.args[0][0]),)
    functional = dataclasses.replace(functional, results=(FromGraph(0), FromGraph(1)))
    first, second = interpret_lowered(lower(functional, Settings()), (x,))
    assert torch.equal(first, second) and first.data_ptr() != second.data_ptr()


# Calls of ATen ----------------------------------------


def test_out_variants_are_kernels_of_their_own():
    x, w = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
    lowered = lowered_of(lambda x, w: F.conv2d(x, w), (x, w))
    assert [item.out_variant for item in lowered.items if isinstance(item, Extern)] == [None]
    a = torch.randn(3, 3)
    lowered = lowered_of(lambda a: torch.addmm(a, a, a), (a,))
    assert lowered.items[0].out_variant == "aten::addmm.out"


def test_complex_and_float8_go_through_aten():
    x = torch.randn(3, dtype=torch.complex64)
    lowered = assert_like_eager(lambda x: (x.view(1, 3) * 2 + 1).t().abs(), x)
    assert not any(isinstance(item, LoopNest) for item in lowered.items)
    assert_like_eager(lambda x: x.to(torch.float8_e4m3fn).float() + 1, torch.randn(4))


def test_view_without_a_copying_form_of_its_own_is_copied():
    assert_like_eager(lambda x: torch.view_as_real(x) + 1, torch.randn(3, dtype=torch.complex64))


def test_unused_statistics_are_not_computed():
    lowered = lowered_of(lambda x: F.layer_norm(x, (4,)), (X,))
    assert not any(item.store.buffer.endswith((".1", ".2")) for item in lowered.items)


def test_sizes_known_only_at_run_time_are_refused():
    with pytest.raises(CompileError, match="symbolic size"):
        lowered_of(lambda x: x.nonzero(), (X,))


def test_literals():
    lowered = assert_like_eager(lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]), X)
    assert list(lowered.constants.values())[0][:2] == ("float32", (4,))


# The verifier ----------------------------------------


def _broken(change):
    lowered = lowered_of(lambda x: (x * 2).sum(0), (X,))
    first, second = lowered.items
    return dataclasses.replace(lowered, **change(lowered, first, second))


@pytest.mark.parametrize(
    "invariant, change",
    [
        ("P2", lambda p, a, b: {"items": (b, a)}),
        ("P3", lambda p, a, b: {"items": (a, a, b)}),
        ("P1", lambda p, a, b: {"buffers": {k: v for k, v in p.buffers.items() if k != b.store.buffer}}),
        ("N2", lambda p, a, b: {"items": (dataclasses.replace(a, axes=a.axes[:1]), b)}),
        ("N2", lambda p, a, b: {"items": (_with_store(a, index=(0, a.store.index[1])), b)}),
        ("N3", lambda p, a, b: {"items": (_with_store(a, value=Compute("cast", (a.store.value,), "int64")), b)}),
        ("N4", lambda p, a, b: {"items": (_with_store(a, mode="add"), b)}),
        ("E1", lambda p, a, b: {"items": (_with_store(a, value=Compute("add", (a.store.value,), "float32")), b)}),
        ("E1", lambda p, a, b: {"items": (_with_store(a, value=Compute("and", (a.store.value,) * 2, "float32")), b)}),
        ("E2", lambda p, a, b: {"items": (_with_load(a, index=a.store.index[:1]), b)}),
        ("E2", lambda p, a, b: {"items": (_with_load(a, dtype="float64"), b)}),
        ("E3", lambda p, a, b: {"items": (_with_load(a, index=(a.store.index[0], b.reduction and _other_axis(b))), b)}),
        ("E4", lambda p, a, b: {"items": (_with_load(a, index=(a.store.index[0] + 1, a.store.index[1])), b)}),
    ],
)
def test_verifier_refuses(invariant, change):
    verify_lowered(lowered_of(lambda x: (x * 2).sum(0), (X,)))
    with pytest.raises(VerifyError, match=invariant):
        verify_lowered(_broken(change))


def _with_store(nest, **changes):
    return dataclasses.replace(nest, store=dataclasses.replace(nest.store, **changes))


def _with_load(nest, **changes):
    load, factor = nest.store.value.args
    return _with_store(nest, value=Compute("mul", (dataclasses.replace(load, **changes), factor), "float32"))


def _other_axis(nest):
    return next(s for s in nest.store.value.index if s.name.startswith("r"))
