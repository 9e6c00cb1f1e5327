"""A proof that leads from goal to goal went on until Python's stack ended, and the program was not compiled."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork


def half_written_in_steps(x, y):
    half, _ = x.chunk(2, 0)
    half[::2] = y[::2]
    return F.pad(half, (2, 1), mode="circular")


def thirds_written_in_steps(x, y):
    first, second, _ = x.tensor_split(3, 1)
    second[:, ::2] = y[: x.shape[0], : second.shape[1] : 2]
    return F.pad(torch.cat([second, first], 1), (1, 2), mode="circular").roll(1, 0)


@pytest.mark.parametrize("program", [half_written_in_steps, thirds_written_in_steps])
def test_is_as_in_eager(program):
    compiled = lampwork.compile(program, dynamic=True)
    for rows, columns in ((5, 5), (6, 7), (9, 8)):
        x, y = torch.rand(rows, columns), torch.rand(rows, columns)
        if program is half_written_in_steps:
            y = torch.rand((rows + 1) // 2, columns)
        theirs, mine = x.clone(), x.clone()
        assert torch.equal(compiled(mine, y), program(theirs, y)) and torch.equal(mine, theirs)
