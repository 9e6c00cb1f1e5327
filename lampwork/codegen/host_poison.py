"""Lines of the host function that fill planned memory with NaN where nothing is in it (LAMPWORK_POISON=1).

    poison(lease.workspace, ((0, 4096),))      before the first step: all of it
    run0(...)
    poison(lease.workspace, ((64, 128),))      what no later step reads

So a step that reads memory which nothing wrote computes NaN (integers: -1), and does so every time. Calls of ATen that
write to planned memory are checked on every call, not on the first with these sizes alone. Within a launch sequence
nothing is filled.
"""

from __future__ import annotations

from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import storage_numel
from lampwork.ir.program import FromBuffer, Program, step_buffers


def idle_ranges(program: Program, position: int) -> tuple[tuple[int, int], ...]:
    """Byte ranges of the workspace with nothing in them after step `position`; -1: before the first."""
    kept = {result.view.buffer for result in program.results if isinstance(result, FromBuffer)}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, step in enumerate(program.steps):
        for name in step_buffers(step):
            first.setdefault(name, number)
            last[name] = number
    busy = []
    for name, place in program.placements.items():
        if place.kind != "workspace" or name not in first:
            continue
        if first[name] <= position and (position < last[name] or name in kept):
            size = storage_numel(program.buffers[name])
            assert isinstance(size, int), "workspace buffers have a known size"
            busy.append((place.offset_bytes, place.offset_bytes + size * ITEM_SIZE_BYTES[program.buffers[name].dtype]))
    ranges, start = [], 0
    for begin, end in [*sorted(busy), (program.workspace_bytes, program.workspace_bytes)]:
        if begin > start:
            ranges.append((start, begin))
        start = max(start, end)
    return tuple(ranges)


def poison_line(ranges: tuple[tuple[int, int], ...]) -> str:
    return f"poison(lease.workspace, {ranges})"
