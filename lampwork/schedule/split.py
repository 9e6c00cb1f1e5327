"""Large reductions to few results in two stages, so that all threads take part.

    s[] = sum_r x[r]          ->    p[c] = sum_r x[4096*c + r];  s[] = sum_c p[c]
    s[j] = sum_nh x[n, h, j]  ->    p[n, c, j] = sum_h x[n, 8*c + h, j];  s[j] = sum_nc p[n, c, j]

The number of chunks depends on the shape (on a GPU also on its multiprocessors), never on the number of threads.
Precondition: nests of one segment. Guarantee: the same buffers are computed, sums in another order (licence
`reassociates`). Non-goals: argmax and argmin (positions would need a second buffer), dynamic sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, floor, prod

from lampwork.ir.loops import Axis, Buffer, Compute, Expr, Load, LoopNest, Reduction, Store, nodes
from lampwork.ir.size import Size, Symbol, add, minimum, mul, product
from lampwork.ir.target import Target
from lampwork.schedule.expressions import Pool, affine_strides, estimate, flat_offset, rewriter
from lampwork.schedule.group import loop_symbol
from lampwork.schedule.tiles import kernels_of, leaves_idle, wanted_chunks

#: Fewer results than this keep threads idle when every result is one thread's work; results that lie side by side are
#: computed a cache line or more at a time, so it takes more of them.
FEW_RESULTS, FEW_COLUMNS = 32, 1024
LARGE_ELEMENTS = 1 << 17
CHUNK_ELEMENTS = 1 << 14
MOST_CHUNKS = 64
#: On a GPU, so many times more or fewer chunks than wanted will do.
ABOUT = 2.5
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
        lengths = _axes_to_split(nest, buffers, nests, target)
        if lengths is None:
            result.append((nest, place))
            continue
        partial, combine, buffer = _split(nest, lengths, f"{prefix}{len(made)}")
        made.append(buffer)
        result += [(partial, place), (combine, place)]
    return result, made


def _axes_to_split(
    nest: LoopNest, buffers: Mapping[str, Buffer], nests: Sequence[LoopNest], target: Target
) -> dict[str, int] | None:
    """The reduction axes to cut, by name, and how long a piece of each is; None: one stage is as good."""
    reduction = nest.reduction
    if reduction is None or reduction.op.startswith("arg") or nest.store.indirect or nest.store.mode != "write":
        return None
    results = product(axis.extent for axis in nest.axes)
    folded = product(axis.extent for axis in reduction.axes)
    if not isinstance(results, int) or not isinstance(folded, int):
        return None
    strides = _widest_strides(nest, buffers)
    side_by_side = any(strides.get(axis.name) == 1 for axis in nest.axes)
    if kernels_of(target).independent_threads:
        if not leaves_idle(results, folded, side_by_side, target):
            return None
        very = leaves_idle(results, folded, side_by_side, target, again=True)
        if not very and _read_row_by_row(nest, nests, through=True):
            return None
        wanted = wanted_chunks(results, folded, side_by_side, target)
        even = _even_pieces(reduction.axes, strides, wanted) if side_by_side else None
        return even or _outermost(reduction.axes, strides, wanted)
    if results * folded < LARGE_ELEMENTS:
        return None
    if results >= (FEW_COLUMNS if side_by_side else FEW_RESULTS):
        (axis, *others) = reduction.axes
        long = not others and isinstance(axis.extent, int) and axis.extent >= 8 * ROWS_AT_ONCE
        if side_by_side and long and not _read_row_by_row(nest, nests):
            return {axis.name: _length(axis, -(-estimate(axis.extent) // ROWS_AT_ONCE))}
        return None
    return _outermost(reduction.axes, strides, max(2, min(MOST_CHUNKS, results * folded // CHUNK_ELEMENTS)))


def _even_pieces(axes: Sequence[Axis], strides: Mapping[str, Size], wanted: int) -> dict[str, int] | None:
    """Pieces of one length, about `wanted` of them: whole outer axes element by element, then a part of the next one.

    What is computed for every element and also stored can be cut in the same way, so it stays in the kernel that folds
    it. None: the extents have no such divisors.
    """
    found: dict[str, int] = {}
    chunks = 1
    for axis in sorted(axes, key=lambda axis: estimate(strides.get(axis.name, 0)), reverse=True):
        extent, missing = estimate(axis.extent), wanted / chunks
        if extent <= missing:
            pieces = extent
        else:
            near = range(max(2, ceil(missing / ABOUT)), min(extent, floor(missing * ABOUT)) + 1)
            even = [pieces for pieces in near if extent % pieces == 0]
            pieces = min(even, key=lambda pieces: max(pieces / missing, missing / pieces), default=1)
        if pieces > 1:
            found[axis.name] = extent // pieces
            chunks *= pieces
        if chunks * ABOUT >= wanted and pieces < extent:
            break
    some_left = chunks < prod(estimate(axis.extent) for axis in axes)
    return found if some_left and 1 < chunks and wanted <= chunks * ABOUT else None


def _outermost(axes: Sequence[Axis], strides: Mapping[str, Size], wanted: int) -> dict[str, int] | None:
    """The outermost axis in memory that gives enough chunks: each is then one piece of memory."""
    enough = [axis for axis in axes if estimate(axis.extent) >= FEW_RESULTS]
    if enough:
        axis = max(enough, key=lambda axis: estimate(strides.get(axis.name, 0)))
        return {axis.name: _length(axis, wanted)}
    axis = max(axes, key=lambda axis: estimate(axis.extent))
    return {axis.name: _length(axis, wanted)} if estimate(axis.extent) >= 8 else None


def _length(axis: Axis, wanted: int) -> int:
    """The length of about `wanted` pieces. One that divides the axis evenly, if there is one near, spares the kernel a
    shorter last piece."""
    extent = estimate(axis.extent)
    length = -(-extent // max(2, min(wanted, extent // 2)))
    return next((near for near in range(length, min(2 * length, extent)) if extent % near == 0), length)


def _read_row_by_row(nest: LoopNest, nests: Sequence[LoopNest], through: bool = False) -> bool:
    """Whether a larger nest reads the result: the two are better fused than cut (softmax over the outer axis).

    `through`: or reads what others make of the result (a batch norm's variance).
    """
    results = len(nest.axes)
    names = {nest.store.buffer}
    for other in nests:
        if not any(type(node) is Load and node.buffer in names for node in nodes([other.store.value])):
            continue
        if len(other.axes) + (len(other.reduction.axes) if other.reduction else 0) > results:
            return True
        if through:
            names.add(other.store.buffer)
    return False


def _widest_strides(nest: LoopNest, buffers: Mapping[str, Buffer]) -> dict[str, Size]:
    """Strides by axis of the load that runs over most axes."""
    reduced = nest.reduction.axes if nest.reduction is not None else ()
    names = {axis.name for axis in (*nest.axes, *reduced)}
    loads = [node for node in nodes([nest.store.value]) if type(node) is Load and not node.indirect]
    strides = [affine_strides(flat_offset(load.index, buffers[load.buffer].strides), names)[0] for load in loads]
    return max(strides, key=len, default={})


def _split(nest: LoopNest, lengths: Mapping[str, int], name: str) -> tuple[LoopNest, LoopNest, Buffer]:
    reduction = nest.reduction
    assert reduction is not None
    chunks: list[Axis] = []
    inside: list[Axis] = []
    values: dict[str, Size] = {}
    for axis in reduction.axes:
        length, extent = lengths.get(axis.name), axis.extent
        if length is None:
            inside.append(axis)
            continue
        assert isinstance(extent, int)  # see _axes_to_split
        chunk = Axis(f"c{len(chunks)}", -(-extent // length))
        chunks.append(chunk)
        symbol = loop_symbol(chunk.name, chunk.extent)
        if length == 1:
            values[axis.name] = symbol
            continue
        inner: Size = length
        if extent % length:
            inner = minimum(length, add(extent, mul(symbol, -length)))
        inside.append(Axis(axis.name, inner))
        values[axis.name] = add(mul(symbol, length), Symbol(axis.name, 0, length - 1))
    pool = Pool()
    rewrite = rewriter(
        pool,
        values,
        lambda load, index, indirect, mask: pool.load(load.buffer, index, load.dtype, indirect, mask, load.other),
    )
    axes = (*chunks, *nest.axes)
    strides: list[Size] = []
    step: Size = 1
    for axis in reversed(axes):
        strides.insert(0, step)
        step = mul(step, axis.extent)
    buffer = Buffer(name, reduction.dtype, tuple(axis.extent for axis in axes), tuple(strides))
    place = tuple(loop_symbol(axis.name, axis.extent) for axis in axes)
    partial = replace(
        nest,
        axes=axes,
        store=Store(name, place, rewrite(nest.store.value)),
        reduction=Reduction(reduction.op, tuple(inside), reduction.dtype),
        partial=False,
    )
    # The few partial sums are added in double precision, which costs nothing and leaves one rounding.
    exact = "float64" if reduction.op == "sum" and reduction.dtype == "float32" else reduction.dtype
    value: Expr = Load(name, place, reduction.dtype)
    if exact != reduction.dtype:
        value = Compute("cast", (value,), exact)
    combine = replace(
        nest,
        store=replace(nest.store, value=value),
        reduction=Reduction(reduction.op, tuple(chunks), exact),
    )
    return partial, combine, buffer
