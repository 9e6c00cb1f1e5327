"""What must run before what: the buffers that items read and write, and the items that each must follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lampwork.ir.attention import Attention
from lampwork.ir.loops import Buffer, Index, Load, LoopNest
from lampwork.ir.program import Check, Extern, Item, tensor_refs
from lampwork.ir.record import record
from lampwork.ir.size import SizeExpr, symbols
from lampwork.ir.weighted_sums import WeightedSums


@record
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
    if isinstance(item, (Attention, WeightedSums)):
        return item.read, item.written
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
    elif isinstance(item, (Attention, WeightedSums)):
        made = item.written
        sizes += [axis.extent for axis in item.axes]
        for node in item.parts:
            if type(node) is Index:
                sizes.append(node.value)
            elif type(node) is Load:
                sizes += node.index
        sizes += [part for store in item.stores for part in store.index]
        names = [*item.read, *item.written]
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


def _leaves(value: object) -> Iterator[object]:
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from _leaves(part)
    else:
        yield value
