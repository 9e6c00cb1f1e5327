"""`schedule`: operators over buffers become fused kernels and a plan of steps and memory.

Lowered -> attention -> segments between ATen calls -> inline -> fuse -> kernels -> steps -> shared memory -> places of
buffers -> Program
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lampwork.config import Settings
from lampwork.errors import CompileError
from lampwork.ir.alternative import Choose
from lampwork.ir.attention import Attention
from lampwork.ir.loops import Axis, Buffer, Kernel, Load, LoopNest, Origin, Store
from lampwork.ir.program import (
    Extern,
    FromBuffer,
    InputWrite,
    Launch,
    Lowered,
    Program,
    RefusedFusion,
    Step,
    ViewOfInput,
    step_buffers,
)
from lampwork.ir.size import Size, Symbol, bounds
from lampwork.ir.target import Target
from lampwork.ir.weighted_sums import WeightedSums
from lampwork.schedule.attention import fuse_attention
from lampwork.schedule.attention_kernel import attention_kernel
from lampwork.schedule.copies import Copies, NotFused, written_out
from lampwork.schedule.dependences import find_dependences
from lampwork.schedule.expressions import view_index
from lampwork.schedule.in_place import reuse_memory
from lampwork.schedule.levels import find_levels
from lampwork.schedule.plan import place_buffers
from lampwork.schedule.products import Version, chosen_versions, movable_products
from lampwork.schedule.segment import Segment, same_text, schedule_segment, with_name
from lampwork.schedule.weighted_sums import fuse_weighted_sums
from lampwork.turns import give_way


def schedule(lowered: Lowered, settings: Settings, target: Target, choose: Choose | None = None) -> Program:
    """The program that computes `lowered`: every result and every write to an input, in a valid order.

    `choose`: decides which matrix products are fused with what follows them (see `products`); by default none is.
    Raises `CompileError` for a write to an input from a view with another element type.
    """
    refused: list[RefusedFusion] = []
    if not settings.options.exact:
        lowered, refused = fuse_weighted_sums(lowered, target)
        lowered, others = fuse_attention(lowered, target)
        refused += others
    while True:
        try:
            return _schedule(lowered, target, choose, refused)
        except NotFused as stop:
            lowered = written_out(lowered, stop.tables)


def _schedule(
    lowered: Lowered, target: Target, choose: Choose | None, refusals: Sequence[RefusedFusion] = ()
) -> Program:
    buffers = dict(lowered.buffers)
    items = [*lowered.items, *(_write_nest(write, lowered) for write in lowered.writes)]
    copies = Copies(lowered.copies)
    tables = copies.of(items)
    dependences = find_dependences(items, buffers, lowered.found)
    returned = frozenset(each.view.buffer for each in lowered.results if isinstance(each, FromBuffer))
    levels = find_levels(items, dependences, buffers, lowered.rematerialised, returned)
    readers = _readers(lowered, items, dependences, levels)

    numbers: dict[int, list[int]] = {}
    externs: dict[int, list[int]] = {}
    for number, item in enumerate(items):
        (numbers if isinstance(item, LoopNest) else externs).setdefault(levels[number], []).append(number)
    elsewhere = {tables[number] for found in externs.values() for number in found} - {-1}
    if elsewhere:
        raise NotFused(elsewhere)
    segments = {
        level: [item for number in found if isinstance(item := items[number], LoopNest)]
        for level, found in sorted(numbers.items())
    }

    def schedule_at(level: int, nests: list[LoopNest], made: list[Buffer]) -> Segment:
        give_way()
        live_out = frozenset(nest.store.buffer for nest in nests if readers.get(nest.store.buffer, set()) - {level})
        known = {**buffers, **{buffer.name: buffer for buffer in made}} if made else buffers
        own = [tables[number] for number in numbers[level]]
        repeated = [-1] * (len(nests) - len(own)) + own if any(table >= 0 for table in own) else []
        return schedule_segment(nests, known, live_out, dependences.mutable, target, f"p{level}_", copies, repeated)

    scheduled = {level: Version(nests, schedule_at(level, nests, [])) for level, nests in segments.items()}
    if choose is not None:
        products = movable_products(items, levels, dependences, buffers)
        scheduled |= chosen_versions(scheduled, products, items, buffers, choose, schedule_at)
    calls = {number for version in scheduled.values() for number in version.products}

    kernels: list[Kernel] = []
    kernel_numbers: dict[str, int] = {}
    steps: list[Step] = []
    refused: list[RefusedFusion] = list(refusals)
    unscheduled_bytes = 0

    def launch(kernel: Kernel, *others: Any) -> Launch:
        place = kernel_numbers.get(same_text(kernel))
        if place is None:
            place = kernel_numbers[same_text(kernel)] = len(kernels)
            kernels.append(kernel)
        return Launch(place, *others)

    for level in range(-1, max(levels, default=-1) + 1):
        version = scheduled.get(level)
        if version is not None:
            nests, segment = version.nests, version.segment
            buffers.update({buffer.name: buffer for buffer in (*version.made, *segment.new_buffers)})
            unscheduled_bytes += segment.unscheduled_bytes
            for made in segment.kernels:
                origins = tuple(dict.fromkeys(nests[number].origin for number in made.nests))
                sizes = tuple(_size(size) if isinstance(size, str) else size for size in made.sizes)
                steps.append(launch(made.kernel, made.buffers, sizes, origins, made.table))
            refused += [
                RefusedFusion(
                    one.refusal.id,
                    _made_by(nests[one.producer]),
                    _made_by(nests[one.consumer]),
                    one.refusal.reason,
                    one.bytes,
                )
                for one in segment.refused
            ]
        for number in externs.get(level, []):
            item = items[number]
            if isinstance(item, (Attention, WeightedSums)):
                kernel, names, taken = attention_kernel(item, buffers)
                steps.append(launch(with_name(kernel), names, tuple(map(_size, taken)), (item.origin,)))
            elif number not in calls and not isinstance(item, LoopNest):
                steps.append(item)

    lowered, kernels, steps, buffers = reuse_memory(lowered, kernels, steps, buffers)
    placements, storages, workspace_bytes, free_after, arena = place_buffers(lowered, steps, buffers)
    used = {name for step in steps for name in step_buffers(step)} | set(placements)
    return Program(
        kernels=tuple(kernels),
        buffers={name: buffer for name, buffer in buffers.items() if name in used},
        placements=placements,
        steps=tuple(steps),
        inputs=lowered.inputs,
        results=lowered.results,
        result_storages=storages,
        workspace_bytes=workspace_bytes,
        constants=lowered.constants,
        free_after=free_after,
        written_inputs=_written_inputs(lowered, items),
        refused=tuple(refused),
        sizes=lowered.sizes,
        unscheduled_bytes=unscheduled_bytes,
        device=lowered.device,
        numbers=lowered.numbers,
        arena=arena,
        found=lowered.found,
        assumed=lowered.assumed,
    )


def _size(name: str) -> Size:
    return Symbol(name)


def _made_by(nest: LoopNest) -> Origin:
    return nest.origin if nest.origin.node else Origin(nest.store.buffer, "")


def _readers(lowered: Lowered, items, dependences, levels) -> dict[str, set[int]]:
    """For each buffer the segments whose nests read it; -1 stands for ATen calls and for the caller."""
    readers: dict[str, set[int]] = {}
    for number, item in enumerate(items):
        reader = levels[number] if isinstance(item, LoopNest) else -1
        for name in dependences.reads[number]:
            readers.setdefault(name, set()).add(reader)
    for result in lowered.results:
        if isinstance(result, FromBuffer):
            readers.setdefault(result.view.buffer, set()).add(-1)
        elif isinstance(result, ViewOfInput):
            readers.setdefault(lowered.inputs[result.input], set()).add(-1)
    return readers


def _written_inputs(lowered: Lowered, items) -> tuple[int, ...]:
    names = {item.store.buffer for item in items if isinstance(item, LoopNest)}
    for item in items:
        if isinstance(item, Extern):
            names.update(item.mutates)
    for table in lowered.copies:
        written = [place for place, name in enumerate(table[0]) if name in names]
        names.update(row[place] for row in table for place in written)
    return tuple(index for index, name in enumerate(lowered.inputs) if name in names)


def _write_nest(write: InputWrite, lowered: Lowered) -> LoopNest:
    """A copy nest into the input; scheduling inlines the nest that made the source, so mostly nothing is copied."""
    target = lowered.buffers[lowered.inputs[write.input]]
    source = lowered.buffers[write.source.buffer]
    if write.source.dtype != source.dtype:
        raise CompileError("schedule", f"input written from {source.dtype} memory viewed as {write.source.dtype}")
    axes = tuple(Axis(f"w{place}", extent) for place, extent in enumerate(target.shape))
    index = tuple(Symbol(axis.name, 0, max(bounds(axis.extent)[1] - 1, 0)) for axis in axes)
    value = Load(source.name, view_index(source, write.source, index), source.dtype)
    return LoopNest(axes, Store(target.name, index, value), origin=Origin(f"write_{write.input}", "aten::copy_"))
