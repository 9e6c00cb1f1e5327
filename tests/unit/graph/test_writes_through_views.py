"""A write through a part of a view that repeats elements changes each element that it names, once, for all readers."""

from __future__ import annotations

import pytest
import torch

import lampwork


def row_of_windows(x):
    windows = x.unfold(0, 3, 1)
    windows[0].add_(1)
    windows.select(0, 1).mul_(2)
    return x, windows


def column_of_windows(x):
    windows = x.as_strided((3, 3), (1, 1))
    windows[:, 1].add_(1)
    return x, windows * 1


def row_of_repeated(x):
    rows = x.expand(3, 5)
    rows[1].add_(1)
    return x, rows * 1


def diagonal_of_repeated(x):
    columns = x[:, None].expand(5, 6)
    columns.diagonal().mul_(3)
    return x, columns * 1


def turned(x):
    columns = x[:, None].expand(5, 3).t()[1:]
    columns[0].fill_(3)
    return x, columns * 1


def part_of_a_row(x):
    rows = x.expand(2, 5)
    rows[1, 1:4].copy_(x[:3] + 7)
    return rows[0] + 1, x


@pytest.mark.parametrize("is_input", [False, True])
@pytest.mark.parametrize(
    "program", [row_of_windows, column_of_windows, row_of_repeated, diagonal_of_repeated, turned, part_of_a_row]
)
def test_parts_of_what_repeats(program, is_input):
    run = program if is_input else lambda x: program(x * 1)
    compiled = lampwork.compile(run, options={"cache": False})
    mine, theirs = torch.arange(5.0), torch.arange(5.0)
    for ours, expected in zip(compiled(mine), run(theirs), strict=True):
        assert torch.equal(ours, expected) and ours.stride() == expected.stride()
    assert torch.equal(mine, theirs)
    stats = lampwork.stats(compiled)
    assert not stats["fallbacks"] and not stats["breaks"]
