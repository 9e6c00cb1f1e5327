"""LLVM ended the process: a selection between two numbers became a load from a table of both, and then a load of the
whole table, where its code generator found what the condition is."""

from __future__ import annotations

import math

import pytest
import torch

import lampwork

PROGRAMS = {
    "where": lambda c: torch.where(c, 0.1, math.inf),
    "where, doubles": lambda c: torch.where(c, torch.tensor(0.1, dtype=torch.float64), math.inf),
    "casts": lambda c: c.float(),
    "casts to doubles": lambda c: c.double(),
    "signs": lambda c: c.float().sub(0.5).sign(),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
@pytest.mark.parametrize("opcode", (torch.ne, torch.eq, torch.gt))
@pytest.mark.parametrize("count", (2, 3, 9))
def test_differences_of_one_element(program, opcode, count):
    """The number is subtracted from itself: a constant that nobody sees before the code generator."""
    x = torch.tensor([3]).expand(count)

    def picked(x):
        return program(opcode(torch.diff(x), 0))

    compiled = lampwork.compile(picked, options={"cache": False})
    assert torch.equal(compiled(x), picked(x))
