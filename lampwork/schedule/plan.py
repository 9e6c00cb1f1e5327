"""Where every buffer lives: inputs, constants, results, and a workspace whose bytes are used again and again.

Buffers that fusion eliminated have no place. A workspace buffer occupies its bytes from the step that first writes it
to the step that last reads it; freed ranges are reused best fit. Buffers whose size is known at run time only share
slots of an arena by the same rule: a slot is taken again by a buffer that is never larger. Where it is not even known
when the call begins, memory is allocated when it is first needed. Parameters of one launch never overlap.

Large buffers on a GPU are allocated when they are first needed, too, and given back after their last use: torch's
allocator is cheap there, and what one program does not need at the moment serves what ATen allocates, the caller's own
tensors and other programs.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence

from lampwork.backends import backend_of
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import Buffer, storage_numel
from lampwork.ir.program import Extern, FromBuffer, Lowered, Placement, Step, step_buffers
from lampwork.ir.size import Size, add, bounds, common_factor, divided, mul, symbols

ALIGNMENT_BYTES = 64
#: Buffers of at least this size have memory of their own on a GPU: reading one takes longer than allocating it.
OWN_MEMORY_BYTES = 2 << 20


def place_buffers(
    lowered: Lowered, steps: Sequence[Step], buffers: Mapping[str, Buffer]
) -> tuple[dict[str, Placement], tuple[str, ...], int, dict[int, tuple[str, ...]], tuple[Size, ...]]:
    """(placements, result storages, workspace bytes, extern-allocated buffers and inputs that no step after
    each one needs, bytes of each slot of the arena)."""
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
    late = late_sizes(lowered)
    returned = [result.view.buffer for result in lowered.results if isinstance(result, FromBuffer)]
    # Results without elements are in no step.
    for name in dict.fromkeys((*(each for step in steps for each in step_buffers(step)), *returned)) if late else ():
        if any(late & symbols(value) for value in (*buffers[name].shape, *buffers[name].strides)):
            placements.setdefault(name, Placement("extern"))
    storages: list[str] = []
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
        elif placement.kind in ("extern", "input") and name not in returned:
            free_after.setdefault(number, []).append(name)
    workspace, arena = _Workspace(), _Arena()
    for number in range(len(steps)):
        for name in born.get(number, ()):
            size_bytes = mul(storage_numel(buffers[name]), ITEM_SIZE_BYTES[buffers[name].dtype])
            if isinstance(size_bytes, int) and size_bytes >= OWN_MEMORY_BYTES and backend_of(lowered.device).own_memory:
                placements[name] = Placement("extern")
                free_after.setdefault(last[name], []).append(name)
            elif isinstance(size_bytes, int):
                placements[name] = Placement("workspace", 0, workspace.take(name, size_bytes))
            else:
                placements[name] = Placement("arena", arena.take(name, size_bytes))
        for name in dies.get(number, ()):
            workspace.give(name)
            arena.give(name)
    frees = {step: tuple(names) for step, names in free_after.items()}
    return placements, tuple(storages), workspace.size_bytes, frees, tuple(arena.sizes)


def late_sizes(lowered: Lowered) -> set[str]:
    """Symbols that are not known when the call begins."""
    late = set(lowered.found)
    for name, axis in lowered.found.values():
        late |= symbols(lowered.buffers[name].shape[axis])
    for name in lowered.inputs:
        known: tuple[Size, ...] = (lowered.numbers.get(name, 0),)
        if name in lowered.buffers:
            known = (*lowered.buffers[name].shape, *lowered.buffers[name].strides)
        for size in known:
            late -= symbols(size)
    return late


class _Arena:
    """Slots of sizes that are expressions; one is taken again by what fits into it whatever the symbols are."""

    def __init__(self) -> None:
        self.sizes: list[Size] = []
        self.free: list[int] = []
        self.taken: dict[str, int] = {}

    def take(self, name: str, size_bytes: Size) -> int:
        fitting = [slot for slot in self.free if self.sizes[slot] == size_bytes]
        if not fitting:
            fitting = [slot for slot in self.free if never_larger(size_bytes, self.sizes[slot])]
        if fitting:
            self.free.remove(fitting[0])
        else:
            fitting = [len(self.sizes)]
            self.sizes.append(size_bytes)
        self.taken[name] = fitting[0]
        return fitting[0]

    def give(self, name: str) -> None:
        slot = self.taken.pop(name, None)
        if slot is not None:
            self.free.append(slot)


def never_larger(one: Size, other: Size) -> bool:
    """Whether `one <= other` for all values of the symbols."""
    difference = add(one, mul(other, -1))
    return bounds(divided(difference, common_factor(difference)))[1] <= 0


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
