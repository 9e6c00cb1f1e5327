"""Cells of recurrent layers (`unsafe_chunk` in them) were compiled again for every size of the batch."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import lampwork


class Cell(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x):
        state = self.cell(x)
        state = self.cell(x * 2, state)
        return state if isinstance(state, torch.Tensor) else torch.cat(state)


class Chunks(nn.Module):
    def forward(self, x):
        first, second, *rest = x.unsafe_chunk(3, 0)
        return first.sum() * second.sin(), *rest, torch.unsafe_chunk(x, 2, dim=-1)[1] + 1


@pytest.mark.parametrize("make", [lambda: Cell(nn.GRUCell(6, 6)), lambda: Cell(nn.LSTMCell(6, 6)), Chunks])
@pytest.mark.parametrize("grad", [False, True])
def test_one_entry_for_all_sizes(make, grad):
    torch.manual_seed(0)
    mine = make()
    other = copy.deepcopy(mine)
    compiled = lampwork.compile(mine, fullgraph=True, options={"cache": False})
    for size in (9, 12, 15, 18):
        x = torch.rand(size, 6)
        ours, theirs = x.clone().requires_grad_(grad), x.clone().requires_grad_(grad)
        found, expected = compiled(ours), other(theirs)
        both = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
        for one, reference in both:
            torch.testing.assert_close(one, reference)
            assert one.stride() == reference.stride()
        if grad:
            for results in (found, expected):
                many = results if isinstance(results, tuple) else (results,)
                sum(each.sum() for each in many).backward()
            torch.testing.assert_close(ours.grad, theirs.grad)
    assert lampwork.stats(compiled)["captures"] == 2
    for own, reference in zip(mine.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(own.grad, reference.grad)
