"""What must run before what, and which nests may share kernels: the items of a program cut into segments.

    addmm -> gelu nest -> addmm -> add nest, layer-norm nests -> addmm
    segment 0: ()   externs 0: addmm   segment 1: gelu   externs 1: addmm   segment 2: add, layer norm   externs 2:
    addmm

Nests of one depth (the number of ATen calls they wait for) form a segment: no ATen call has to run between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import Buffer, Index, Load, LoopNest
from lampwork.ir.program import Check, Extern, Item, TensorRef
from lampwork.ir.size import SizeExpr, product, symbols
from lampwork.schedule.expressions import estimate


@dataclass(frozen=True)
class Dependences:
    """`before[i]`: items that item i must follow. `reads`, `writes`: buffers by item.

    `mutable`: buffers that are stored more than once or belong to the caller, so that the order of loads and stores
    counts.
    """

    before: tuple[frozenset[int], ...]
    reads: tuple[tuple[str, ...], ...]
    writes: tuple[tuple[str, ...], ...]
    mutable: frozenset[str]


def find_dependences(
    items: Sequence[Item], buffers: Mapping[str, Buffer], found: Mapping[str, tuple[str, int]] | None = None
) -> Dependences:
    """Read-after-write, write-after-read and write-after-write, with respect to program order; what draws random
    numbers follows what drew before it, and what is checked before it.

    `found`: sizes that calls decide, as in `Lowered`: what has to do with them reads the results that have them.
    """
    makers = _size_makers(found, buffers) if found else {}
    reads, writes, before = [], [], []
    last_write: dict[str, int] = {}
    reads_since: dict[str, set[int]] = {}
    times_written: dict[str, int] = {}
    checks: set[int] = set()
    last_draw: int | None = None
    for number, item in enumerate(items):
        item_reads, item_writes = accesses(item)
        if makers:
            item_reads = tuple(dict.fromkeys([*item_reads, *_sizes_read(item, buffers, makers)]))
        waits: set[int] = set()
        for name in item_reads:
            if name in last_write:
                waits.add(last_write[name])
        for name in item_writes:
            if name in last_write:
                waits.add(last_write[name])
            waits |= reads_since.get(name, set())
        if any(buffers[name].kind == "input" for name in item_writes):
            waits |= checks  # A failed check leaves the caller's memory as it was.
        if isinstance(item, Check) or (makers and not set(item_writes).isdisjoint(makers.values())):
            checks.add(number)
        if isinstance(item, Extern) and item.draws:
            waits |= checks
            if last_draw is not None:
                waits.add(last_draw)
            last_draw = number
        for name in item_reads:
            reads_since.setdefault(name, set()).add(number)
        for name in item_writes:
            last_write[name] = number
            reads_since[name] = set()
            times_written[name] = times_written.get(name, 0) + 1
        waits.discard(number)
        reads.append(item_reads)
        writes.append(item_writes)
        before.append(frozenset(waits))
    mutable = frozenset(
        name for name, times in times_written.items() if times > 1 or buffers[name].kind != "intermediate"
    )
    return Dependences(tuple(before), tuple(reads), tuple(writes), mutable)


def accesses(item: Item) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if isinstance(item, LoopNest):
        return item.read, (item.store.buffer,)
    if isinstance(item, Check):
        return (item.buffer,), ()
    found = dict.fromkeys(ref.buffer for ref in tensor_refs(item))
    return tuple(found), tuple(dict.fromkeys([*(name for name in item.outputs if name is not None), *item.mutates]))


def _size_makers(found: Mapping[str, tuple[str, int]], buffers: Mapping[str, Buffer]) -> dict[str, str]:
    """The buffer that is the first to have a size, by symbol; what inputs have is known without."""
    inputs = [buffer for buffer in buffers.values() if buffer.kind == "input"]
    known = {name for buffer in inputs for size in (*buffer.shape, *buffer.strides) for name in symbols(size)}
    makers = {name: buffer for name, (buffer, _) in found.items()}
    for buffer, axis in found.values():
        for name in symbols(buffers[buffer].shape[axis]) - known:
            makers.setdefault(name, buffer)
    return makers


def _sizes_read(item: Item, buffers: Mapping[str, Buffer], makers: Mapping[str, str]) -> Iterator[str]:
    """Buffers whose sizes an item needs to know, but for those that it makes."""
    sizes: list[Any] = []
    made: tuple[str | None, ...] = ()
    if isinstance(item, LoopNest):
        made = (item.store.buffer,)
        sizes += [axis.extent for axis in item.axes]
        if item.reduction is not None:
            sizes += [axis.extent for axis in item.reduction.axes]
        for node in item.parts:
            if type(node) is Index:
                sizes.append(node.value)
            elif type(node) is Load:
                sizes += node.index
        sizes += item.store.index
        names = [name for accessed in accesses(item) for name in accessed]
    elif isinstance(item, Extern):
        made = item.outputs
        sizes += [value for value in _leaves((item.args, item.kwargs)) if isinstance(value, SizeExpr)]
        refs = list(tensor_refs(item))
        sizes += [value for ref in refs for value in (*ref.shape, *ref.strides, ref.offset)]
        names = [name for name in (*made, *item.mutates) if name is not None]
    else:
        names = [item.buffer]
    sizes += [value for name in names for value in (*buffers[name].shape, *buffers[name].strides)]
    for size in sizes:
        for name in symbols(size):
            if name in makers and makers[name] not in made:
                yield makers[name]


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def tensor_refs(item: Extern) -> Iterator[TensorRef]:
    """Every tensor among the arguments of an ATen call."""

    def walk(value: Any) -> Iterator[TensorRef]:
        if isinstance(value, TensorRef):
            yield value
        elif isinstance(value, (tuple, list)):
            for part in value:
                yield from walk(part)

    yield from walk(item.args)
    for _, value in item.kwargs:
        yield from walk(value)


def find_depths(
    items: Sequence[Item], dependences: Dependences, buffers: Mapping[str, Buffer], again: frozenset[str] = frozenset()
) -> list[int]:
    """For each nest the number of its segment; for each ATen call the segment it follows: -1, ahead of all, for calls
    that read no memory.

    Nests come as early as they can, but one that makes more than it reads (an expanded mask, a cast weight) waits for
    its first consumer: nothing lives longer than it needs to. So does what is computed from inputs alone (values that a
    backward pass computes again), unless it reads what nobody else would need any more by then. And so does what makes
    one of the buffers `again`, as in `Lowered`, calls too: it is computed again so that it need not be kept.
    """
    depths: list[int] = []
    after: list[list[int]] = [[] for _ in items]
    for number, item in enumerate(items):
        nest = isinstance(item, LoopNest)
        depth = 0 if nest or dependences.reads[number] else -1
        for earlier in dependences.before[number]:
            after[earlier].append(number)
            step = 1 if nest and not isinstance(items[earlier], LoopNest) else 0
            depth = max(depth, depths[earlier] + step)
        depths.append(depth)
    latest = list(depths)  # for what is computed from inputs alone, if all of it waited
    for number in range(len(items) - 1, -1, -1):
        if depths[number] == 0 and isinstance(items[number], LoopNest) and after[number]:
            latest[number] = min([latest[later] for later in after[number]])
    for number in range(len(items) - 1, -1, -1):
        nest, repeated = isinstance(items[number], LoopNest), not again.isdisjoint(dependences.writes[number])
        if not after[number] or not (nest or repeated):
            continue
        # A call runs behind the segment of its number.
        first = min([depths[later] - (not nest and isinstance(items[later], LoopNest)) for later in after[number]])
        if first <= depths[number]:
            continue
        waits = repeated or _grows(number, dependences, buffers)
        if not waits:
            first = min([first, *_last_used(number, latest, after, dependences)]) if depths[number] == 0 else 0
        depths[number] = max(depths[number], first)
    return depths


def _last_used(
    number: int, latest: Sequence[int], after: Sequence[Sequence[int]], dependences: Dependences
) -> Iterator[int]:
    """Until when other items need what an item reads, for all that they need."""
    for earlier in dependences.before[number]:
        others = [latest[later] for later in after[earlier] if later != number]
        if others:
            yield max(others)


def _grows(number: int, dependences: Dependences, buffers: Mapping[str, Buffer]) -> bool:
    written = sum(_size_bytes(buffers[name]) for name in dependences.writes[number])
    read = sum(_size_bytes(buffers[name]) for name in dependences.reads[number] if buffers[name].kind == "intermediate")
    return written >= read


def _size_bytes(buffer: Buffer) -> int:
    return estimate(product(buffer.shape)) * ITEM_SIZE_BYTES.get(buffer.dtype, 8)
