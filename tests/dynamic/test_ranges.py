"""Loops over a range of a size that varies take its turns as symbols, with a guard for each."""

from __future__ import annotations

import pytest
import torch

import lampwork


def chunks(x):
    return torch.stack([x[start : start + 4].sum(0) * start for start in range(0, x.shape[0], 4)])


def in_one_piece(x, length=None):
    length = length or x.shape[0]
    return [x[start : start + length] * 2 for start in range(0, x.shape[0], length)]


def from_the_middle(x):
    total = x[0] * 0
    for place in range(x.shape[0] // 2, x.shape[0], 3):
        total = total + x[place] * place
    return total


def as_an_object(x):
    numbers = range(0, x.shape[0], 4)
    return x + len(numbers), numbers.stop, [x[place] for place in numbers], isinstance(numbers, range)


def backwards(x):
    return [x[place] for place in range(x.shape[0] - 1, -1, -1)]


def left_early(x):
    for start in range(0, x.shape[0], 3):
        if start > 5:
            break
    else:
        start = -1
    return x + start, start


def not_at_all(x):
    return [x[place] for place in range(x.shape[0], 1, 2)], x


def zero_step(x):
    try:
        return x, [place for place in range(0, x.shape[0], x.shape[0] - x.shape[0])]
    except ValueError as error:
        return x, str(error)


PROGRAMS = (chunks, in_one_piece, from_the_middle, as_an_object, backwards, left_early, not_at_all, zero_step)


@pytest.mark.parametrize("program", PROGRAMS)
def test_as_eager(program):
    compiled = lampwork.compile(program)
    for length in (2, 5, 6, 7, 8, 9, 10, 11, 12, 13, 29, 30):
        x = torch.randn(length, 3)
        ours, expected = compiled(x), program(x)
        if program is zero_step:
            assert ours[1] == expected[1]
            ours, expected = ours[0], expected[0]
        torch.testing.assert_close(ours, expected)
    assert not lampwork.stats(compiled)["breaks"]


def test_as_many_entries_as_there_are_cases():
    compiled = lampwork.compile(in_one_piece)
    for length in range(2, 30):
        compiled(torch.randn(length, 3))
    assert lampwork.stats(compiled)["entries"] <= 2
    compiled = lampwork.compile(chunks)
    for length in (100, 97, 98, 99, 98, 97):  # the last chunk is shorter, or is not
        compiled(torch.randn(length, 3))
    assert lampwork.stats(compiled)["entries"] <= 3
