"""Iterations that meet in memory: what scheduling put together may be right nest by nest, and wrong as one loop.

The interpreters of nests read all before they write. In a loop, an iteration that reads what another one writes depends
on which comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from lampwork.ir.interpret import size_values
from lampwork.ir.loops import Axis, Buffer, Expr, Load, LoopNest

#: Iterations of a nest that are looked at, at most.
MOST = 1 << 18


def hazard_of_nest(nest: LoopNest, buffers: Mapping[str, Buffer]) -> str:
    """Why a nest cannot be a loop: it reads elements of what it writes in other iterations. Empty where it can."""
    return next(_conflicts(nest, nest, buffers), "")


def hazard_of_group(nests: Sequence[LoopNest], buffers: Mapping[str, Buffer]) -> str:
    """The same of nests over axes that they share by name, which become one loop."""
    for place, writer in enumerate(nests):
        for other in nests[:place]:
            over = _reduced(writer) & _axes(other) or _reduced(other) & _axes(writer)
            if over and writer.reduction is not None and other.reduction is not None:
                return f"{writer.store.buffer} and {other.store.buffer} are reductions over different axes of one loop"
        for reader in (*nests[:place], *nests[place + 1 :]):
            found = next(_conflicts(writer, reader, buffers), "")
            if found:
                return found
    return ""


def _conflicts(writer: LoopNest, reader: LoopNest, buffers: Mapping[str, Buffer]) -> Iterator[str]:
    name = writer.store.buffer
    if writer.store.indirect or name not in buffers:
        return
    for load in _loads([reader.store.value]):
        if load.buffer != name or load.indirect:
            continue
        if _meet(writer, reader, load):
            yield f"{name} is read where another iteration of the loop writes it"
            return


def _meet(writer: LoopNest, reader: LoopNest, load: Load) -> bool:
    """Whether an element is written in one iteration and read in another one, by the axes that both loop over."""
    written = _places(writer.axes, writer.store.index)
    read = _places(_all_axes(reader), load.index)
    if written is None or read is None:
        return False
    (places, ours), (elements, theirs) = written, read
    shared = [axis.name for axis in writer.axes if axis.name in theirs]
    at = {tuple(place): row for row, place in enumerate(places)}
    for row, element in enumerate(elements):
        found = at.get(tuple(element))
        if found is not None and any(ours[axis][found] != theirs[axis][row] for axis in shared):
            return True
    return False


def _places(axes: Iterable[Axis], index: tuple[Any, ...]) -> tuple[np.ndarray, dict[str, np.ndarray]] | None:
    """The element for each iteration, and the iterations by axis; None where there are too many, or sizes vary."""
    axes = list(axes)
    if not all(isinstance(axis.extent, int) for axis in axes):
        return None
    extents = [int(axis.extent) for axis in axes if isinstance(axis.extent, int)]
    if prod(extents) > MOST:
        return None
    grid = np.indices(extents).reshape(len(extents), -1) if extents else np.zeros((0, 1), int)
    values = {axis.name: grid[place] for place, axis in enumerate(axes)}
    try:
        columns = [np.broadcast_to(size_values(part, values), grid.shape[1:]) for part in index]
    except KeyError:
        return None
    return np.stack(columns, 1) if columns else np.zeros((grid.shape[1], 0), int), values


def _all_axes(nest: LoopNest) -> tuple[Axis, ...]:
    return (*nest.axes, *(nest.reduction.axes if nest.reduction is not None else ()))


def _axes(nest: LoopNest) -> set[str]:
    return {axis.name for axis in nest.axes}


def _reduced(nest: LoopNest) -> set[str]:
    return {axis.name for axis in nest.reduction.axes} if nest.reduction is not None else set()


def _loads(values: Iterable[Expr]) -> Iterator[Load]:
    seen: set[int] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Load):
            yield value
            if value.mask is not None:
                waiting.append(value.mask)
        waiting += getattr(value, "args", ())
