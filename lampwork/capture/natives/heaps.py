"""`heapq`, written out for elements that compare by code of the program, or that vary: as its own version in Python.

    heapq.heappush(queue, Request(priority, name))

Heaps of plain data are left to C.
"""

from __future__ import annotations

import heapq
from typing import Any

from lampwork.capture.bytecode.decode import decode
from lampwork.capture.machine import Answer
from lampwork.capture.machine.values import Enter
from lampwork.capture.natives import perform


def _rise(heap: Any, place: int, item: Any, top: int) -> None:
    """Moves the hole at `place` up, as far as `item` is smaller than what is there, not beyond `top`, and fills it."""
    while place > top:
        parent = (place - 1) >> 1
        if not item < heap[parent]:
            break
        heap[place] = heap[parent]
        place = parent
    heap[place] = item


def _sink(heap: Any, top: int) -> None:
    """Puts the element at `top` in its place: down to a leaf along the smaller children, then up, as the library."""
    item, place, child, end = heap[top], top, 2 * top + 1, len(heap)
    while child < end:
        if child + 1 < end and not heap[child] < heap[child + 1]:
            child += 1
        heap[place] = heap[child]
        place = child
        child = 2 * place + 1
    _rise(heap, place, item, top)


def _push(heap: Any, item: Any) -> None:
    heap.append(item)
    _rise(heap, len(heap) - 1, item, 0)


def _pop(heap: Any) -> Any:
    if not heap:
        raise IndexError("index out of range")
    last = heap.pop()
    return _replace(heap, last) if heap else last


def _replace(heap: Any, item: Any) -> Any:
    if not heap:
        raise IndexError("index out of range")
    first = heap[0]
    heap[0] = item
    _sink(heap, 0)
    return first


def _push_pop(heap: Any, item: Any) -> Any:
    return _replace(heap, item) if heap and heap[0] < item else item


def _heapify(heap: Any) -> None:
    for top in reversed(range(len(heap) // 2)):
        _sink(heap, top)


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
# The machine interprets what is written in this package only where it is told so.
for _function in (_rise, _sink, *_WRITTEN_OUT.values()):
    _code: Any = decode(_function.__code__)
    _code.hidden, _code.is_native = True, False
NATIVES: dict[Any, Answer] = {native: _answer(native, python) for native, python in _WRITTEN_OUT.items()}
