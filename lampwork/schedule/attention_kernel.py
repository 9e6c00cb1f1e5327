"""The kernel of an `Attention` or of `WeightedSums`: flat offsets, and kernels' names, so that equal ones are one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lampwork.ir.attention import Attention, attention_body
from lampwork.ir.loops import (
    Axis,
    Buffer,
    Compute,
    Constant,
    Expr,
    Kernel,
    Load,
    Local,
    Parameter,
    Store,
    storage_numel,
)
from lampwork.ir.size import Size, Symbol, symbols
from lampwork.ir.weighted_sums import RowProduct, WeightedSum, WeightedSums, sums_body
from lampwork.schedule.expressions import Pool, find_symbol, flat_offset, rewriter, substitute_sizes
from lampwork.schedule.group import loop_symbol


def attention_kernel(
    item: Attention | WeightedSums, buffers: Mapping[str, Buffer]
) -> tuple[Kernel, tuple[str, ...], tuple[str, ...]]:
    """The kernel of an item, without a name, and the buffers and sizes that it is launched with."""
    pool = Pool()
    parameters: dict[str, str] = {}
    sizes = _size_names(item, buffers)
    values: dict[str, Size] = dict(sizes)
    names = {}
    for place, axis in enumerate(item.axes):
        extent = substitute_sizes(axis.extent, sizes)
        names[axis.name] = Axis(f"i{place}", extent)
        values[axis.name] = loop_symbol(f"i{place}", extent)

    def offset(buffer: str, index: tuple[Size, ...]) -> Size:
        return flat_offset(index, [substitute_sizes(stride, sizes) for stride in buffers[buffer].strides])

    def parameter(buffer: str) -> str:
        return parameters.setdefault(buffer, f"b{len(parameters)}")

    def on_load(load: Load, index: tuple[Size, ...], indirect: tuple, mask: Expr | None) -> Expr:
        return pool.load(parameter(load.buffer), (offset(load.buffer, index),), load.dtype, indirect, mask, load.other)

    rewrite = rewriter(pool, values, on_load)

    def stored(store: Store) -> Store:
        index = tuple([substitute_sizes(part, values) for part in store.index])
        return Store(parameter(store.buffer), (offset(store.buffer, index),), rewrite(store.value))

    def loaded(load: Load) -> Load:
        found = rewrite(load)
        assert isinstance(found, Load)
        return found

    if isinstance(item, Attention):
        flat = Attention(
            tuple([names[axis.name] for axis in item.batch]), names[item.row.name], names[item.key.name],
            names[item.inner.name], names[item.column.name], loaded(item.query), loaded(item.keys),
            loaded(item.values), rewrite(item.score), item.weights, stored(item.result),
            tuple([stored(store) for store in item.rows]), item.origin,
        )  # fmt: skip
        body = attention_body(flat)
    else:
        products = [RowProduct(names[e.inner.name], loaded(e.left), loaded(e.right)) for e in item.products]
        sums = [
            WeightedSum(names[e.column.name], rewrite(e.weight), e.dtype, loaded(e.factor), stored(e.result))
            for e in item.sums
        ]
        body = sums_body(
            WeightedSums(
                tuple([names[axis.name] for axis in item.batch]), names[item.row.name], names[item.key.name],
                tuple(products), tuple(sums), item.origin,
            )
        )  # fmt: skip
    made = []
    for buffer_name, name in parameters.items():
        buffer = buffers[buffer_name]
        written = buffer_name in item.written
        numel = substitute_sizes(storage_numel(buffer), sizes)
        aligned = written and buffer.kind == "intermediate"
        made.append(Parameter(name, buffer.dtype, "write" if written else "read", numel, aligned))
    taken = tuple([f"s{place}" for place in range(len(sizes))])
    kernel = Kernel("", tuple(made), body, taken, (item.origin,))
    return kernel, tuple(parameters), tuple(sizes)


def _size_names(item: Attention | WeightedSums, buffers: Mapping[str, Buffer]) -> dict[str, Symbol]:
    """Sizes of the program by what they are called in the kernel, in order of first use."""
    axes = {axis.name for axis in item.axes}
    values: list[Any] = [axis.extent for axis in item.axes]
    bound: set[str] = set()
    for part in item.parts:
        if type(part) is Load:
            values += part.index
            bound |= {name for name, _ in part.indirect}
        elif type(part) is not Compute and type(part) is not Constant and type(part) is not Local:
            values.append(part.value)
    for store in item.stores:
        values += store.index
    for name in (*item.read, *item.written):
        values += [*buffers[name].shape, *buffers[name].strides]
    found: dict[str, Symbol] = {}
    for value in values:
        for name in sorted(symbols(value)):
            if name not in axes and name not in bound and name not in found:
                symbol = find_symbol(value, name)
                assert symbol is not None
                found[name] = Symbol(f"s{len(found)}", symbol.lower, symbol.upper, symbol.seen)
    return found
