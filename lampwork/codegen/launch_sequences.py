"""A program's launches as native code runs them: in runs of consecutive ones, which end where memory is given back."""

from __future__ import annotations

from collections.abc import Iterable

from lampwork.backends import backend_of
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import storage_numel
from lampwork.ir.program import Extern, Launch, Program, step_buffers

#: A sequence on a GPU ends where so much memory is free again and more is needed. (One more costs the host 2 us.)
FREED_BYTES = 16 << 20


def launch_sequences(program: Program) -> list[list[Launch]]:
    """The launch sequences among the program's steps, in order: what runs without the host's doing anything."""
    starts = sequence_starts(program)
    result: list[list[Launch]] = []
    for number, step in enumerate(program.steps):
        if number in starts:
            result.append([])
        if isinstance(step, Launch):
            result[-1].append(step)
    return result


def sequence_starts(program: Program) -> frozenset[int]:
    """The steps that sequences begin with: launches after other steps, and on a GPU those that make large buffers
    after launches which were the last to need others."""
    starts: set[int] = set()
    made = {name for step in program.steps if isinstance(step, Extern) for name in step.outputs}
    seen: set[str] = set()
    freed = 0
    follows = False
    own_memory = backend_of(program.device).own_memory
    for number, step in enumerate(program.steps):
        if not isinstance(step, Launch):
            follows = False
            continue
        needed = {name for name in step_buffers(step) if _is_allocated(program, name)}
        new = needed - seen - made
        seen |= new
        if not follows or (new and freed >= FREED_BYTES):
            starts.add(number)
            freed = 0
        follows = True
        if own_memory:
            freed += _bytes(program, program.free_after.get(number, ()))
    return frozenset(starts)


def _is_allocated(program: Program, name: str) -> bool:
    return program.placements[name].kind in ("extern", "result")


def _bytes(program: Program, names: Iterable[str]) -> int:
    """Memory of the buffers of known size among `names` that the program allocates."""
    total = 0
    for name in names:
        numel = storage_numel(program.buffers[name])
        if _is_allocated(program, name) and isinstance(numel, int):
            total += numel * ITEM_SIZE_BYTES[program.buffers[name].dtype]
    return total
