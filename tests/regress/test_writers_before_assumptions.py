"""Operators of libraries, and launches, wrote into inputs themselves although something was assumed of contents after
them: where it did not hold, an exception of ours came out, or the call would have written twice."""

from __future__ import annotations

import pytest
import torch

import lampwork


@torch.library.custom_op("test_writers_before_assumptions::increment", mutates_args={"x"})
def increment(x: torch.Tensor) -> None:
    x.add_(1)


@increment.register_fake
def _(x):
    pass


@torch.library.custom_op("test_writers_before_assumptions::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].clone()


@positive.register_fake
def _(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


def usual_side(x, y):
    increment(x)
    factor, info = torch.linalg.cholesky_ex(y)
    return -x if info.any() else x + factor.sum()


def index(x, y):
    increment(x)
    return x * [3.0][int((y < 0).any())]


def check(x, y):
    increment(x)
    torch._check(y.sum().item() > 0)
    return x * 3


def size(x, y):
    increment(x)
    return x + positive(y).view(-1, 3).shape[0]


def between(x, y):
    increment(x)
    factor, info = torch.linalg.cholesky_ex(y)
    if info.item():
        return -x
    increment(x)
    return x + factor.sum()


@pytest.mark.parametrize("program", [usual_side, index, check, size, between])
def test_what_does_not_hold_is_eagers(program):
    compiled = lampwork.compile(program)
    good, bad = 2 * torch.eye(3), -torch.eye(3)
    for y in (good, good, bad, good, bad, torch.zeros(3, 3)):
        found = []
        for function in (program, compiled):
            x = torch.arange(3.0)
            try:
                result = function(x, y)
            except Exception as error:
                result = type(error)
            found.append((str(result), x.tolist()))
        assert found[0] == found[1]


def test_writes_after_the_last_assumption_are_in_place():
    def program(x, y):
        torch._check(y.sum().item() > 0)
        increment(x)
        return y * 2

    compiled = lampwork.compile(program)
    x = torch.zeros(3)
    compiled(x, torch.ones(3))
    assert x.tolist() == [1, 1, 1]
    (entry,) = compiled.__lampwork__.entries
    assert any("increment" in step.op and step.mutates for step in entry.artifact.program.steps if hasattr(step, "op"))
