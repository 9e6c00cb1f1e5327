"""What comparisons of sizes give is a number to operators, and each is compiled for what it is: True or False."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F

import lampwork

OPERATORS = [
    operator.ge, operator.eq, operator.lt, operator.mod, operator.pow, operator.floordiv, operator.truediv, operator.add,
    operator.mul, operator.sub, operator.lshift, operator.and_, operator.or_, operator.iadd, operator.imod, operator.ipow,
    torch.eq, torch.add, torch.fmod, torch.xlogy,
]  # fmt: skip
CALLS = {
    "masked_fill": lambda x, truth: x.masked_fill(x > 0, truth),
    "new_full": lambda x, truth: x.new_full((2,), truth),
    "tensor": lambda x, truth: torch.tensor([truth, 1]),
    "keepdim": lambda x, truth: x.sum(0, keepdim=truth),
    "clamp": lambda x, truth: x.clamp(max=truth),
    "where": lambda x, truth: torch.where(x > 0, truth, 5),
    "value": lambda x, truth: torch.addcmul(x, x, x, value=truth),
    "training": lambda x, truth: F.dropout(x, 0.0, truth),
    "index": lambda x, truth: torch.stack([x, x])[truth],
    "arange": lambda x, truth: torch.arange(truth),
}


def answer(function, *args):
    try:
        result = function(*args)
        return (result.dtype, str(result.tolist())) if isinstance(result, torch.Tensor) else result
    except Exception as error:
        return type(error), str(error)


def check(program):
    compiled = lampwork.compile(program, options={"cache": False})
    for size, k in ((3, 3), (4, 4), (5, 2), (6, 9)):
        assert answer(compiled, torch.ones(size), k) == answer(program, torch.ones(size), k)


@pytest.mark.parametrize("operation", OPERATORS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("of", [lambda x: x, lambda x: x[0], lambda x: x > 0], ids=["floats", "number", "truths"])
def test_operators(operation, of):
    check(lambda x, k: operation(of(x), k > 3))


@pytest.mark.parametrize("operation", OPERATORS[:13], ids=lambda each: each.__name__)
def test_on_the_left(operation):
    check(lambda x, k: operation(k > 3, x))


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_calls(call):
    check(lambda x, k: call(x, k > 3))
