"""Native code refused what stands for a number or a tensor in a capture, and the program's own `except` took the error for
one of eager's."""

from __future__ import annotations

import collections
import itertools
import struct

import pytest
import torch

import lampwork


def longest(x, k):
    return x + len(collections.deque([1, 2, 3, 4], maxlen=k))


def packed(x, k):
    return struct.pack("<f", x[0])


def sizes(x, k):
    return set(x.shape)


def permuted(x, k):
    return next(itertools.permutations([1, 2, 3, 4], k))


def size_of_numbers(x, k):
    return torch.Size([x[0].long(), k])


def popped(x, k):
    return [1, 2, 3].pop(k > 3)


def counted(x, k):
    return list(range(k > 3)), list(enumerate("ab", k > 3))


def cut(x, k):
    return list(itertools.islice([5, 6, 7], x[0].long()))


def divided(x, k):
    return divmod(x, k)


def joined(x, k):
    return "".join([x])


def inserted(x, k):
    numbers = [3, 4, 5]
    numbers.insert(k > 3, 9)
    numbers.remove(k)
    return numbers


def sorted_by_the_program(x, k):
    calls = []

    def key(value):
        calls.append(value)
        if len(calls) == 2:
            raise ValueError(str(len(calls)))
        return k

    try:
        return sorted([x, x + 1], key=key)
    except ValueError as error:
        return len(calls), str(error)


PROGRAMS = [longest, packed, sizes, permuted, size_of_numbers, popped, counted, cut, divided, joined, inserted]


@pytest.mark.parametrize("program", [*PROGRAMS, sorted_by_the_program], ids=lambda each: each.__name__)
def test_the_program_catches_what_eager_raises(program):
    def function(x, k):
        try:
            return program(x, k)
        except Exception as error:
            return type(error), str(error)

    compiled = lampwork.compile(function)
    for size, k in ((2, 3), (3, 4), (4, 5)):
        x = torch.ones(size)
        assert str(compiled(x, k)) == str(function(x, k))
