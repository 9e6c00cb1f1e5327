"""`numerics="eager"`: each operator that kernels compute then has eager's bits, and what is not known to is called."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import lampwork
from lampwork import _torch
from lampwork.backends import exact
from tests.ops.bits import apart

from .exact_rows import CALLS, FLOATS, MORE, ON_GPUS, computing, differing


@pytest.mark.parametrize("row", CALLS)
def test_row_has_eagers_bits(row):
    types, arity, calls = CALLS[row]
    for dtype in types:
        found, called = differing(calls, dtype, arity)
        assert not any(found), (row, dtype, found)
        if not exact.CPU[row][0].contracted or _torch.contracts_products():
            assert not called, (row, dtype, called)  # else nothing was shown of kernels


@pytest.mark.parametrize("number", range(len(MORE)))
def test_more_calls_have_eagers_bits(number):
    types, arity, calls = MORE[number]
    for dtype in types:
        found, _ = differing(calls, dtype, arity)
        assert not any(found), (dtype, found)


def test_each_row_that_computes_is_tried():
    assert computing(exact.CPU, exact._MOVES) == set(CALLS)
    assert computing(exact.CUDA, exact._MOVES) <= {*CALLS, *ON_GPUS}
    assert set(ON_GPUS) <= set(exact.CUDA)


@pytest.mark.parametrize("function", [torch.exp, torch.tanh, torch.sqrt, torch.sum, torch.nn.functional.gelu,
                                      lambda x: torch.softmax(x, -1), lambda x: x.cumsum(-1), lambda x: x @ x.t()])  # fmt: skip
def test_what_is_no_row_is_called(function):
    compiled = lampwork.compile(function, options={"numerics": "eager"})
    x = torch.randn(70, 33)
    assert not apart(compiled(x), function(x))
    assert sum(lampwork.stats(compiled)["extern_calls"].values()) == 1
    assert not lampwork.stats(compiled)["native_kernels"]


def test_default_rounds_otherwise():
    """What the option is for: the same program has other bits without it."""

    def program(x):
        return torch.nn.functional.gelu(x).sum(-1)

    x = torch.randn(64, 1000)
    assert apart(lampwork.compile(program)(x), program(x))
    assert not apart(lampwork.compile(program, options={"numerics": "eager"})(x), program(x))


# Chains ----------------------------------------

_ONE = {
    "relu": torch.relu, "neg": torch.neg, "abs": torch.abs, "square": torch.square, "x + .1": lambda x: x + 0.1,
    "x * .3": lambda x: x * 0.3, "x / 3": lambda x: x / 3, "1 - x": lambda x: 1 - x, "clamp": lambda x: x.clamp(-1, 0.7),
    "leaky": lambda x: torch.nn.functional.leaky_relu(x, 0.1), "round": torch.round, "1 / x": torch.reciprocal,
    "tanh": torch.tanh, "exp": torch.exp, "sqrt": lambda x: x.abs().sqrt(), "sigmoid": torch.sigmoid, "gelu": torch.nn.functional.gelu,
    "half": lambda x: x.half(), "bfloat16": lambda x: x.bfloat16(), "float": lambda x: x.float(), "double": lambda x: x.double(),
    "t": lambda x: x.t(), "rows": lambda x: x[1:].repeat(2, 1)[: x.shape[0]], "mean": lambda x: x - x.mean(-1, keepdim=True),
    "softmax": lambda x: x.softmax(-1), "sum": lambda x: x + x.sum(0),
}  # fmt: skip
_TWO = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "maximum": torch.maximum, "minimum": torch.minimum,
    "add .3": lambda a, b: torch.add(a, b, alpha=0.3), "where": lambda a, b: torch.where(a > b, a, b * 2),
    "lerp": lambda a, b: torch.lerp(a.to(b.dtype), b, 0.1), "addcmul": lambda a, b: torch.addcmul(a.to(b.dtype), b, b, value=0.3),
    "addcdiv": lambda a, b: torch.addcdiv(a.to(b.dtype), b, b + 3, value=-0.3), "masked": lambda a, b: a.masked_fill(b > 0, 0.1),
}  # fmt: skip
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(sorted(_ONE)), st.integers(0, 3)),
        st.tuples(st.sampled_from(sorted(_TWO)), st.integers(0, 3), st.integers(0, 3)),
    ),
    min_size=2,
    max_size=8,
)


def _chain(steps, inputs):
    values = list(inputs)
    for name, *places in steps:
        operands = [values[place % len(values)] for place in places]
        values.append((_ONE if len(places) == 1 else _TWO)[name](*operands))
        if len(values) > 4:
            del values[0]
    return values


@settings(max_examples=30, deadline=None)
@given(_STEPS, st.sampled_from(FLOATS), st.sampled_from(FLOATS), st.sampled_from([1, 5, 16, 33]), st.integers(0, 1000))
def test_chains_have_eagers_bits(steps, one, other, side, seed):
    chance = torch.Generator().manual_seed(seed)
    inputs = [torch.randn(side, side, generator=chance).to(dtype) for dtype in (one, other)]
    compiled = lampwork.compile(lambda *inputs: _chain(steps, inputs), options={"numerics": "eager", "cache": False})
    with torch.no_grad():
        assert not apart(compiled(*inputs), _chain(steps, inputs))


@settings(max_examples=15, deadline=None)
@given(_STEPS, st.sampled_from(FLOATS), st.sampled_from([1, 5, 33]), st.integers(0, 1000))
def test_gradients_of_chains_have_eagers_bits(steps, dtype, side, seed):
    def program(*inputs):
        leaves = [each.detach().requires_grad_() for each in inputs]
        results = [each for each in _chain(steps, leaves) if each.requires_grad]
        return (
            torch.autograd.grad([each.float().sum() for each in results], leaves, allow_unused=True) if results else ()
        )

    chance = torch.Generator().manual_seed(seed)
    inputs = [torch.randn(side, side, generator=chance).to(dtype) for _ in range(2)]
    compiled = lampwork.compile(program, options={"numerics": "eager", "cache": False})
    assert not apart(compiled(*inputs), program(*inputs))
