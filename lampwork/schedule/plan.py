"""Where every buffer lives: inputs, constants, results, and a workspace whose bytes are used again and again.

Buffers that fusion eliminated have no place. A workspace buffer occupies its bytes from the step that first writes
it to
the step that last reads it; freed ranges are reused best fit. Parameters of one launch never overlap.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence

from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import Buffer
from lampwork.ir.program import Check, Extern, FromBuffer, Launch, Lowered, Placement, ScalarOutput, Step
from lampwork.ir.size import Size, add, mul
from lampwork.schedule.dependences import tensor_refs

ALIGNMENT_BYTES = 64


def storage_numel(buffer: Buffer) -> Size:
    """Elements from the first to the last of a strided buffer."""
    if any(extent == 0 for extent in buffer.shape):
        return 0
    last: Size = 1
    for extent, stride in zip(buffer.shape, buffer.strides):
        last = add(last, mul(add(extent, -1), stride))
    return last


def step_buffers(step: Step) -> tuple[str, ...]:
    """Buffers that a step touches."""
    if isinstance(step, Launch):
        return step.buffers
    if isinstance(step, (ScalarOutput, Check)):
        return (step.buffer,)
    names = [ref.buffer for ref in tensor_refs(step)]
    return tuple(dict.fromkeys([*names, *(name for name in step.outputs if name is not None), *step.mutates]))


def place_buffers(
    lowered: Lowered, steps: Sequence[Step], buffers: Mapping[str, Buffer]
) -> tuple[dict[str, Placement], tuple[str, ...], int, dict[int, tuple[str, ...]]]:
    """(placements, result storages, workspace bytes, extern-allocated buffers to free after each step)."""
    placements: dict[str, Placement] = {}
    for index, name in enumerate(lowered.inputs):
        if name in lowered.numbers:
            continue
        placements.setdefault(name, Placement("input", index))
    for index, name in enumerate(lowered.constants):
        placements[name] = Placement("constant", index)
    for step in steps:
        if isinstance(step, Extern) and step.out_variant is None:
            placements.update((name, Placement("extern")) for name in step.outputs if name is not None)
    storages: list[str] = []
    returned = [result.view.buffer for result in lowered.results if isinstance(result, FromBuffer)]
    for name in dict.fromkeys(returned):
        if name not in placements:
            placements[name] = Placement("result", len(storages))
            storages.append(name)

    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, step in enumerate(steps):
        for name in step_buffers(step):
            first.setdefault(name, number)
            last[name] = number
    born: dict[int, list[str]] = {}
    dies: dict[int, list[str]] = {}
    free_after: dict[int, list[str]] = {}
    for name, number in last.items():
        placement = placements.get(name)
        if placement is None:
            born.setdefault(first[name], []).append(name)
            dies.setdefault(number, []).append(name)
        elif placement.kind == "extern" and name not in returned:
            free_after.setdefault(number, []).append(name)
    workspace = _Workspace()
    for number in range(len(steps)):
        for name in born.get(number, ()):
            size = storage_numel(buffers[name])
            if isinstance(size, int):
                size_bytes = size * ITEM_SIZE_BYTES[buffers[name].dtype]
                placements[name] = Placement("workspace", 0, workspace.take(name, size_bytes))
            else:
                # A size known at run time only: a fresh tensor of its own.
                placements[name] = Placement("result", len(storages))
                storages.append(name)
        for name in dies.get(number, ()):
            workspace.give(name)
    return placements, tuple(storages), workspace.size_bytes, {k: tuple(v) for k, v in free_after.items()}


class _Workspace:
    """Free ranges of a growing block of memory."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.free: list[tuple[int, int]] = []  # (offset, size), sorted, never adjacent
        self.taken: dict[str, tuple[int, int]] = {}

    def take(self, name: str, size_bytes: int) -> int:
        size = max(-(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES, ALIGNMENT_BYTES)
        fitting = [(length, offset) for offset, length in self.free if length >= size]
        if fitting:
            length, offset = min(fitting)
            self.free.remove((offset, length))
            if length > size:
                insort(self.free, (offset + size, length - size))
        elif self.free and sum(self.free[-1]) == self.size_bytes:
            offset, _ = self.free.pop()
            self.size_bytes = offset + size
        else:
            offset = self.size_bytes
            self.size_bytes += size
        self.taken[name] = (offset, size)
        return offset

    def give(self, name: str) -> None:
        found = self.taken.pop(name, None)
        if found is None:
            return
        insort(self.free, found)
        place = self.free.index(found)
        if place + 1 < len(self.free) and sum(self.free[place]) == self.free[place + 1][0]:
            self.free[place : place + 2] = [(self.free[place][0], self.free[place][1] + self.free[place + 1][1])]
        if place > 0 and sum(self.free[place - 1]) == self.free[place][0]:
            self.free[place - 1 : place + 1] = [
                (self.free[place - 1][0], self.free[place - 1][1] + self.free[place][1])
            ]
