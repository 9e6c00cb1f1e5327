"""`heapq`, written out for elements that compare by code of the program, or that vary: as its own version in Python.

    heapq.heappush(queue, Request(priority, name))

Heaps of plain data are left to C.
"""

from __future__ import annotations

import heapq
from typing import Any

from lampwork.capture.machine import Answer
from lampwork.capture.machine.values import Enter
from lampwork.capture.natives import perform


def _push(heap: Any, item: Any) -> None:
    heap.append(item)
    place = len(heap) - 1
    while place > 0:
        parent = (place - 1) >> 1
        if not item < heap[parent]:
            break
        heap[place] = heap[parent]
        place = parent
    heap[place] = item


def _pop(heap: Any) -> Any:
    if not heap:
        raise IndexError("index out of range")
    last = heap.pop()
    if not heap:
        return last
    return heapq.heapreplace(heap, last)


def _replace(heap: Any, item: Any) -> Any:
    if not heap:
        raise IndexError("index out of range")
    first = heap[0]
    heap[0] = item
    # As the library does: down to a leaf along the smaller children, then up again.
    place, end = 0, len(heap)
    child = 1
    while child < end:
        if child + 1 < end and not heap[child] < heap[child + 1]:
            child += 1
        heap[place] = heap[child]
        place = child
        child = 2 * place + 1
    while place > 0:
        parent = (place - 1) >> 1
        if not item < heap[parent]:
            break
        heap[place] = heap[parent]
        place = parent
    heap[place] = item
    return first


def _push_pop(heap: Any, item: Any) -> Any:
    if heap and heap[0] < item:
        return heapq.heapreplace(heap, item)
    return item


def _heapify(heap: Any) -> None:
    end = len(heap)
    for start in reversed(range(end // 2)):
        item, place, child = heap[start], start, 2 * start + 1
        while child < end:
            if child + 1 < end and not heap[child] < heap[child + 1]:
                child += 1
            heap[place] = heap[child]
            place = child
            child = 2 * place + 1
        while place > start:
            parent = (place - 1) >> 1
            if not item < heap[parent]:
                break
            heap[place] = heap[parent]
            place = parent
        heap[place] = item


def _answer(native: Any, written_out: Any) -> Any:
    def answer(world: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs or not args or type(args[0]) is not list or all(map(world.data.is_plain_data, args)):
            return perform.perform(world, native, "data", args, kwargs)
        return Enter(written_out, args, kwargs)

    return answer


_WRITTEN_OUT = {
    heapq.heappush: _push, heapq.heappop: _pop, heapq.heapreplace: _replace, heapq.heappushpop: _push_pop,
    heapq.heapify: _heapify,
}  # fmt: skip
NATIVES: dict[Any, Answer] = {native: _answer(native, python) for native, python in _WRITTEN_OUT.items()}
