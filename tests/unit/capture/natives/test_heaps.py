"""Heaps of objects that compare by code of the program, and of plain data, are what `heapq` makes of them."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field

import torch

import lampwork


@dataclass(order=True)
class Request:
    priority: int
    name: str = field(compare=False)


def served(x, priorities):
    asked = []
    heap = [Request(each, f"first {place}") for place, each in enumerate(priorities)]
    heapq.heapify(heap)
    for place, each in enumerate(priorities):
        heapq.heappush(heap, Request(each, f"second {place}"))
    asked.append(heapq.heapreplace(heap, Request(4, "replaced")))
    asked.append(heapq.heappushpop(heap, Request(2, "in and out")))
    while len(heap) > 2:
        asked.append(heapq.heappop(heap))
    return x + len(asked), [(each.priority, each.name) for each in (*asked, *heap)]


def beside_numbers(x, priorities):
    heap = []
    for place, each in enumerate(priorities):
        heapq.heappush(heap, (each, place))
    return x, heapq.nsmallest(3, heap), heapq.nlargest(2, heap, key=lambda pair: -pair[1]), heap


def empty(x, priorities):
    heap = []
    try:
        heapq.heappop(heap)
    except IndexError as error:
        return x, str(error), list(heapq.merge(sorted(priorities), [1, 2]))


def kept(x, heap, request):
    heapq.heappush(heap, request)
    return x * len(heap), heap[0].name


def test_heaps():
    generator = random.Random(0)
    for program in (served, beside_numbers, empty):
        compiled = lampwork.compile(program, options={"recompile_limit": 64})
        for _ in range(3):
            priorities = [generator.randrange(6) for _ in range(7)]
            found, expected = compiled(torch.ones(1), priorities), program(torch.ones(1), priorities)
            assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:]
        stats = lampwork.stats(compiled)
        assert not stats["breaks"] and not stats["fallbacks"]


def test_heap_of_the_caller():
    compiled = lampwork.compile(kept, options={"recompile_limit": 64})
    mine, other = [], []
    for place, priority in enumerate((3, 1, 2, 1, 5)):
        found = compiled(torch.ones(1), mine, Request(priority, str(place)))
        expected = kept(torch.ones(1), other, Request(priority, str(place)))
        assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:]
        assert [each.name for each in mine] == [each.name for each in other]
