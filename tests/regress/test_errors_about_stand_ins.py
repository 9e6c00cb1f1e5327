"""Native code refused what stands for a number or a tensor in a capture, and the program's own `except` took the error for
one of eager's."""

from __future__ import annotations

import collections
import heapq
import itertools
import json
import operator
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


def looked_up(x, k):
    return {x.shape: 1}.get(x.shape)


def dumped(x, k):
    return json.dumps([x.shape, k > 3])


def the_larger(x, k):
    return max(k > 3, 2), max([k > 3, 2], key=lambda each: each)


def in_order(x, k):
    return sorted([k > 3, 1]), min([k > 3, 2])


def named_by_a_number(x, k):
    return getattr(x, k)


def called_by_name(x, k):
    return operator.methodcaller("add", k > 3)(x)


def added_to_sizes(x, k):
    return operator.add(x[0], x.shape)


def made_a_heap(x, k):
    return heapq.heapify(x[0])


def pairs_of_an_iterator(x, k):
    return {1: k} | dict(map(str, [1, k]))


def bytes_of_an_iterator(x, k):
    iterator = map(lambda each: each, [3, x, "b"])
    try:
        return bytes(iterator)
    except TypeError:
        return list(iterator)


def repeated(x, k):
    return itertools.repeat(1, k / 2)


def without_bits(x, k):
    return k / 2 & 3


def a_group(x, k):
    return ExceptionGroup(k / 2, [])


def bits_of_floats(x, k):
    return x & k


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


PROGRAMS = [
    longest, packed, sizes, permuted, size_of_numbers, popped, counted, cut, divided, joined, inserted, looked_up, dumped,
    the_larger, in_order, named_by_a_number, called_by_name, added_to_sizes, made_a_heap, pairs_of_an_iterator,
    bytes_of_an_iterator, repeated, without_bits, a_group, bits_of_floats,
]  # fmt: skip


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
