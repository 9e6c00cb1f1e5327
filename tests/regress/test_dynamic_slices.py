"""Slices that count from the end of a dimension whose size varies; once they began before the tensor's memory."""

from __future__ import annotations

import pytest
import torch

import lampwork

PROGRAMS = {
    "the last ones": lambda x: x[:, -3:] * 2,
    "without the last ones": lambda x: x[:, :-2] + 1,
    "between": lambda x: x[:, 2:-1].sum(1),
    "more than there are": lambda x: x[:, -20:] * 2,
    "the last, multiplied": lambda x: x[:, -1:] @ torch.ones(8, 8),
    "half": lambda x: x[:, -x.shape[1] // 2 :] * 2,
    "by the size": lambda x: x[:, x.shape[1] - 5 :] * 2,
    "from either end": lambda x: x[:, 9 - x.shape[1] :] * 2,
    "written": lambda x: torch.slice_scatter(x, x[:, -2:] * 3, 1, -2),
}


@pytest.mark.parametrize("rows", [2, 3])
def test_a_piece_that_is_one_long_at_two_sizes(rows):
    """`s - (s + 1) // 2` is 1 for 2 and for 3: that it is no more than one said so of no expression."""
    program = lambda x: x - (x.chunk(2)[-1] + 1)
    lampwork.reset()
    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    for size in (rows, 5 - rows):
        x = torch.randn(size, 4)
        torch.testing.assert_close(compiled(x), program(x))
    assert lampwork.stats(compiled)["entries"] == 1 and not lampwork.stats(compiled)["fallbacks"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_slices(name):
    program = PROGRAMS[name]
    lampwork.reset()
    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    for length in (16, 9, 12, 7):
        x = torch.randn(2, length, 8)
        torch.testing.assert_close(compiled(x), program(x))
    assert not lampwork.stats(compiled)["fallbacks"]
