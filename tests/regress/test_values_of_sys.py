"""`sys.version_info` and its like, which no program can make: reading them was a TypeError of the program's."""

from __future__ import annotations

import sys

import pytest
import torch

import lampwork


@lampwork.disable
def outside(x):
    return x


def returned(x):
    return x + 1, sys.version_info, sys.flags


def held_over_a_break(x):
    flags = sys.flags
    y = outside(x + 1)
    return y * flags.optimize, flags is sys.flags


def compared(x):
    return (x + 1 if sys.version_info >= (3, 8) else x - 1), sys.flags.n_fields, sys.float_info.max > 1


@pytest.mark.parametrize("program", [returned, held_over_a_break])
def test_the_one_that_is_there(program):
    compiled = lampwork.compile(program, options={"cache": False})
    x = torch.arange(3.0)
    for _ in range(3):
        (tensor, *rest), (expected, *others) = compiled(x), program(x)
        assert torch.equal(tensor, expected)
        assert all(mine is theirs for mine, theirs in zip(rest, others, strict=True))


def test_what_they_say():
    compiled = lampwork.compile(compared, options={"cache": False}, fullgraph=True)
    x = torch.arange(3.0)
    for _ in range(2):
        (tensor, *rest), (expected, *others) = compiled(x), compared(x)
        assert torch.equal(tensor, expected) and rest == others
    assert lampwork.stats(compiled)["captures"] == 1
