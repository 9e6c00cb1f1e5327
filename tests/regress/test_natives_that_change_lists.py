"""Native functions that change a list in which numbers vary: they were given a copy with the numbers as they are now."""

from __future__ import annotations

import heapq
import operator

import pytest
import torch

import lampwork


def smallest(x, rows):
    return x, heapq.nsmallest(3, rows), heapq.nlargest(1, rows)


def heap_of_numbers(x, rows):
    heap = []
    for place, (number, _) in enumerate(rows):
        heapq.heappush(heap, (number, place))
    first = heapq.heapreplace(heap, (rows[0][0], 9))
    return x, heap, first, heapq.heappushpop(heap, rows[1])


def heap_of_the_caller(x, rows):
    row = [rows[0][0], -1]
    rows[:] = map(list, rows)
    heapq.heapify(rows)
    heapq.heappush(rows, row)
    return x, any(each is row for each in rows)


def operators(x, rows):
    numbers = [number for number, _ in rows]
    operator.setitem(numbers, 0, rows[1][0] + 1)
    same = operator.iadd(numbers, [rows[2][0]])
    operator.delitem(numbers, 1)
    return x, numbers, same is numbers, operator.iconcat(numbers, [3]) is numbers


@pytest.mark.parametrize("program", [smallest, heap_of_numbers, heap_of_the_caller, operators])
def test_numbers_that_vary(program):
    compiled = lampwork.compile(program, options={"recompile_limit": 64})
    for step in range(4):
        rows = [((step * 7 + place * 3) % 5, place) for place in range(5)]
        mine, other = list(rows), list(rows)
        assert compiled(torch.ones(1), mine)[1:] == program(torch.ones(1), other)[1:]
        assert mine == other
