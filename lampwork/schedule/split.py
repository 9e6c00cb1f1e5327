"""Large reductions to few results in two stages, so that all threads take part.

    s[] = sum_r x[r]          ->    p[c] = sum_r x[4096*c + r];  s[] = sum_c p[c]

The number of chunks depends on the shape alone, so the result does not depend on the number of threads.
Precondition: nests of one segment. Guarantee: the same buffers are computed, sums in another order (licence
`reassociates`). Non-goals: argmax and argmin (positions would need a second buffer), dynamic sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lampwork.ir.loops import Axis, Buffer, Compute, Expr, Load, LoopNest, Reduction, Store, nodes
from lampwork.ir.size import Size, Symbol, add, minimum, mul, product
from lampwork.ir.target import Target
from lampwork.schedule.expressions import Pool, affine_strides, estimate, flat_offset, rewriter
from lampwork.schedule.group import loop_symbol
from lampwork.schedule.tiles import is_gpu, leaves_idle, wanted_chunks

#: Fewer results than this keep threads idle when every result is one thread's work; results that lie side by side are
#: computed a cache line or more at a time, so it takes more of them.
FEW_RESULTS, FEW_COLUMNS = 32, 1024
LARGE_ELEMENTS = 1 << 17
CHUNK_ELEMENTS = 1 << 14
MOST_CHUNKS = 64
#: Rows summed side by side before the next columns: as many pages as the first-level TLB holds. Down 4096 rows of
#: 16 KB at once, every load would miss it (4096 x 4096 float32: 28 ms that way, 3.4 ms this way, on 2 Zen 4 cores).
ROWS_AT_ONCE = 64


def split_reductions(
    nests: Sequence[LoopNest],
    buffers: Mapping[str, Buffer],
    target: Target,
    prefix: str,
) -> tuple[list[tuple[LoopNest, int]], list[Buffer]]:
    """The nests, each with the place of the nest it comes from, and buffers for partial results."""
    result: list[tuple[LoopNest, int]] = []
    made: list[Buffer] = []
    for place, nest in enumerate(nests):
        found = _axis_to_split(nest, buffers, nests, target)
        if found is None:
            result.append((nest, place))
            continue
        partial, combine, buffer = _split(nest, *found, f"{prefix}{len(made)}")
        made.append(buffer)
        result += [(partial, place), (combine, place)]
    return result, made


def _axis_to_split(
    nest: LoopNest, buffers: Mapping[str, Buffer], nests: Sequence[LoopNest], target: Target
) -> tuple[Axis, int] | None:
    """The reduction axis to cut and the number of chunks wanted; None: one stage is as good."""
    reduction = nest.reduction
    if reduction is None or reduction.op.startswith("arg") or nest.store.indirect or nest.store.mode != "write":
        return None
    results = product(axis.extent for axis in nest.axes)
    folded = product(axis.extent for axis in reduction.axes)
    if not isinstance(results, int) or not isinstance(folded, int):
        return None
    strides = _widest_strides(nest, buffers)
    side_by_side = any(strides.get(axis.name) == 1 for axis in nest.axes)
    if is_gpu(target):
        if not leaves_idle(results, folded, side_by_side, target):
            return None
        return _outermost(reduction.axes, strides, wanted_chunks(results, folded, side_by_side, target))
    if results * folded < LARGE_ELEMENTS:
        return None
    if results >= (FEW_COLUMNS if side_by_side else FEW_RESULTS):
        (axis, *others) = reduction.axes
        long = not others and isinstance(axis.extent, int) and axis.extent >= 8 * ROWS_AT_ONCE
        if side_by_side and long and not _read_row_by_row(nest, nests):
            return axis, -(-estimate(axis.extent) // ROWS_AT_ONCE)
        return None
    return _outermost(reduction.axes, strides, max(2, min(MOST_CHUNKS, results * folded // CHUNK_ELEMENTS)))


def _outermost(axes: Sequence[Axis], strides: Mapping[str, Size], wanted: int) -> tuple[Axis, int] | None:
    """The outermost axis in memory that gives enough chunks: each is then one piece of memory."""
    enough = [axis for axis in axes if estimate(axis.extent) >= FEW_RESULTS]
    if enough:
        return max(enough, key=lambda axis: estimate(strides.get(axis.name, 0))), wanted
    axis = max(axes, key=lambda axis: estimate(axis.extent))
    return (axis, wanted) if estimate(axis.extent) >= 8 else None


def _read_row_by_row(nest: LoopNest, nests: Sequence[LoopNest]) -> bool:
    """Whether a larger nest reads the result: the two are better fused than cut (softmax over the outer axis)."""
    results = len(nest.axes)
    return any(
        len(other.axes) + (len(other.reduction.axes) if other.reduction else 0) > results
        for other in nests
        for node in nodes([other.store.value])
        if type(node) is Load and node.buffer == nest.store.buffer
    )


def _widest_strides(nest: LoopNest, buffers: Mapping[str, Buffer]) -> dict[str, Size]:
    """Strides by axis of the load that runs over most axes."""
    reduced = nest.reduction.axes if nest.reduction is not None else ()
    names = {axis.name for axis in (*nest.axes, *reduced)}
    loads = [node for node in nodes([nest.store.value]) if type(node) is Load and not node.indirect]
    strides = [affine_strides(flat_offset(load.index, buffers[load.buffer].strides), names)[0] for load in loads]
    return max(strides, key=len, default={})


def _split(nest: LoopNest, axis: Axis, wanted: int, name: str) -> tuple[LoopNest, LoopNest, Buffer]:
    reduction, extent = nest.reduction, axis.extent
    assert reduction is not None and isinstance(extent, int)  # see _axis_to_split
    length = -(-extent // max(2, min(wanted, extent // 2)))
    # A length that divides evenly, if there is one near, spares the kernel a shorter last chunk.
    length = next((near for near in range(length, min(2 * length, extent)) if extent % near == 0), length)
    chunks = -(-extent // length)
    chunk = Axis("c0", chunks)
    symbol = loop_symbol("c0", chunks)
    inner: Size = length
    if extent % length:
        inner = minimum(length, add(extent, mul(symbol, -length)))
    values: dict[str, Size] = {axis.name: add(mul(symbol, length), Symbol(axis.name, 0, length - 1))}
    pool = Pool()
    rewrite = rewriter(
        pool,
        values,
        lambda load, index, indirect, mask: pool.load(load.buffer, index, load.dtype, indirect, mask, load.other),
    )
    shape = (chunks, *(a.extent for a in nest.axes))
    strides: list[Size] = []
    step: Size = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step = mul(step, size)
    buffer = Buffer(name, reduction.dtype, shape, tuple(strides))
    kept = tuple(loop_symbol(a.name, a.extent) for a in nest.axes)
    axes = tuple(Axis(a.name, inner) if a is axis else a for a in reduction.axes)
    partial = replace(
        nest,
        axes=(chunk, *nest.axes),
        store=Store(name, (symbol, *kept), rewrite(nest.store.value)),
        reduction=Reduction(reduction.op, axes, reduction.dtype),
        partial=False,
    )
    # The few partial sums are added in double precision, which costs nothing and leaves one rounding.
    exact = "float64" if reduction.op == "sum" and reduction.dtype == "float32" else reduction.dtype
    value: Expr = Load(name, (symbol, *kept), reduction.dtype)
    if exact != reduction.dtype:
        value = Compute("cast", (value,), exact)
    combine = replace(
        nest,
        store=replace(nest.store, value=value),
        reduction=Reduction(reduction.op, (chunk,), exact),
    )
    return partial, combine, buffer
