"""Concatenation, padding and other rearrangements that need a copy: one nest whose index or mask does the work.

    cat([a, b], 0)      out[i] = where(i < n, a[i] if i < n, b[i - n] if i >= n)
    constant_pad_nd     out[i] = x[i - left] where inside, else value

Masks are comparisons of one index with a constant, so that a scheduler can split the loop where they change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lampwork.ir.dtype import NATIVE
from lampwork.ir.loops import Compute, Expr
from lampwork.ir.program import Extern
from lampwork.ir.size import Size, add, bounds, floordiv, maximum, minimum, mod, mul, product
from lampwork.lower import expressions as ex
from lampwork.lower.expressions import as_index
from lampwork.lower.lower import Lowering
from lampwork.lower.rules import rule
from lampwork.lower.values import CannotLoad, IndexTuple, TensorValue, contiguous_strides, is_closed
from lampwork.lower.view import reshape_map, slice_bounds
from lampwork.lower.view_copy import place_on_diagonal

#: More pieces than this make a chain of conditions slower than ATen's copies.
_MOST_PIECES = 16


@rule("cat")
def _cat(lowering: Lowering, tensors: Sequence[TensorValue], dim: int = 0) -> TensorValue:
    meta = lowering.out
    # ATen skips the legacy one-dimensional empty tensor whatever the shapes.
    pieces = [tensor for tensor in tensors if tensor.shape != (0,) or meta.shape == (0,)]
    pieces = [piece for piece in pieces if piece.shape[dim] != 0] or pieces[:1]
    if not pieces or len(pieces) > _MOST_PIECES:
        return NotImplemented
    return concatenated(lowering, pieces, dim % len(meta.shape))


def concatenated(lowering: Lowering, pieces: Sequence[TensorValue], dim: int) -> TensorValue:
    meta = lowering.out
    if len(pieces) == 1:
        return lowering.compute(meta, pieces[0].load)
    starts: list[Size] = [0]
    for piece in pieces:
        starts.append(add(starts[-1], piece.shape[dim]))

    def body(index: IndexTuple) -> Expr:
        position = index[dim]
        last = len(pieces) - 1

        def piece_at(k: int) -> Expr:
            mask = ex.both(
                ex.at_least(position, starts[k]) if k else None, ex.below(position, starts[k + 1]) if k < last else None
            )
            shifted = (*index[:dim], add(position, mul(starts[k], -1)), *index[dim + 1 :])
            if pieces[k].known is not None and is_closed(value := pieces[k].load(shifted)):
                return ex.cast(value, meta.dtype)  # nothing is read
            return ex.cast(pieces[k].load(shifted, mask), meta.dtype)

        value = piece_at(last)
        for k in range(last - 1, -1, -1):
            value = ex.where(ex.below(position, starts[k + 1]), piece_at(k), value)
        return value

    return lowering.compute(meta, body)


@rule("stack")
def _stack(lowering: Lowering, tensors: Sequence[TensorValue], dim: int = 0) -> TensorValue:
    if len(tensors) > _MOST_PIECES or any(tensor.dtype != tensors[0].dtype for tensor in tensors):
        return NotImplemented
    rank = len(tensors[0].shape)
    dim %= rank + 1
    rows = []
    for tensor in tensors:
        shape, strides = tensor.shape, tensor.ref.strides
        rows.append(
            tensor.view(
                (*shape[:dim], 1, *shape[dim:]),
                (*strides[:dim], 1, *strides[dim:]),
                0,
                lambda index: index[:dim] + index[dim + 1 :],
            )  # fmt: skip
        )
    return concatenated(lowering, rows, dim)


# Padding ----------------------------------------


@rule("constant_pad_nd")
def _constant_pad(lowering: Lowering, self: TensorValue, pad: Sequence[Size], value: Any = 0) -> TensorValue:
    shape, meta = self.shape, lowering.out
    rank = len(shape)
    before: list[Size] = [0] * rank
    for k in range(len(pad) // 2):
        before[rank - 1 - k] = pad[2 * k]
    if 0 in shape:
        return NotImplemented

    def body(index: IndexTuple) -> Expr:
        mask: Expr | None = None
        inner: list[Size] = []
        for k in range(rank):
            left = before[k]
            position = add(index[k], mul(left, -1))
            inner.append(position)
            if left != 0 and not (isinstance(left, int) and left < 0):
                mask = ex.both(mask, ex.at_least(index[k], left))
            end = add(left, shape[k])
            if end != meta.shape[k] and not (
                isinstance(end, int) and isinstance(meta.shape[k], int) and end > meta.shape[k]
            ):
                mask = ex.both(mask, ex.below(index[k], end))
        if mask is None:
            return self.load(tuple(inner))
        fill = ex.constant(value, self.dtype)
        return ex.where(mask, self.load(tuple(inner), mask, fill.value), fill)

    return lowering.compute(meta, body)


def _mapped_padding(names: tuple[str, ...], function: Callable) -> None:
    @rule(*names)
    def lower_padding(lowering: Lowering, self: TensorValue, padding: Sequence[int]) -> TensorValue:
        rank = len(self.shape)
        before = {rank - 1 - k: padding[2 * k] for k in range(len(padding) // 2)}
        if 0 in self.shape:
            return NotImplemented

        def body(index: IndexTuple) -> Expr:
            return self.load(
                tuple(
                    function(add(index[k], -before[k]), self.shape[k]) if k in before else index[k] for k in range(rank)
                )
            )

        return lowering.compute(lowering.out, body)


def _reflected(position: Size, extent: Size) -> Size:
    """(n-1) - |(n-1) - |p||"""
    position = maximum(position, mul(position, -1))
    rest = add(add(extent, -1), mul(position, -1))
    return add(add(extent, -1), mul(maximum(rest, mul(rest, -1)), -1))


def _nearest(position: Size, extent: Size) -> Size:
    if bounds(extent)[0] < 1:
        raise CannotLoad("the edge of a dimension that may be empty")
    return minimum(maximum(position, 0), add(extent, -1))


_mapped_padding(("reflection_pad1d", "reflection_pad2d", "reflection_pad3d"), _reflected)
_mapped_padding(("replication_pad1d", "replication_pad2d", "replication_pad3d"), _nearest)


# Rearrangements ----------------------------------------


@rule("flip")
def _flip(lowering: Lowering, self: TensorValue, dims: Sequence[int]) -> TensorValue:
    shape = self.shape
    flipped = {d % len(shape) for d in dims} if shape else set()

    def body(index: IndexTuple) -> Expr:
        return self.load(tuple(add(add(shape[k], -1), mul(i, -1)) if k in flipped else i for k, i in enumerate(index)))

    return lowering.compute(lowering.out, body)


@rule("roll")
def _roll(lowering: Lowering, self: TensorValue, shifts: Sequence[int], dims: Sequence[int] = ()) -> TensorValue:
    shape = self.shape
    if not shape:
        return lowering.compute(lowering.out, self.load)
    if 0 in shape:
        return NotImplemented
    if not dims:
        flat = product(shape)
        strides = contiguous_strides(shape)
        back = reshape_map(shape, (flat,))

        def body_flat(index: IndexTuple) -> Expr:
            position: Size = 0
            for i, step in zip(index, strides):
                position = add(position, mul(i, step))
            return self.load(back((mod(add(position, -shifts[0]), flat),)))

        return lowering.compute(lowering.out, body_flat)
    amount = dict.fromkeys(range(len(shape)), 0)
    for shift, d in zip(shifts, dims):
        amount[d % len(shape)] += shift

    def body(index: IndexTuple) -> Expr:
        return self.load(tuple(mod(add(i, -amount[k]), shape[k]) if amount[k] else i for k, i in enumerate(index)))

    return lowering.compute(lowering.out, body)


@rule("repeat")
def _repeat(lowering: Lowering, self: TensorValue, repeats: Sequence[Size]) -> TensorValue:
    shape = self.shape
    if 0 in shape:
        return NotImplemented
    missing = len(repeats) - len(shape)

    def body(index: IndexTuple) -> Expr:
        return self.load(
            tuple(
                index[missing + k] if repeats[missing + k] == 1 else mod(index[missing + k], extent)
                for k, extent in enumerate(shape)
            )
        )

    return lowering.compute(lowering.out, body)


# Writes into a part of a copy (what in-place writes to views become) ----------------------------------------


@rule("slice_scatter")
def _slice_scatter(
    lowering: Lowering,
    self: TensorValue,
    src: TensorValue,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: int = 1,
) -> TensorValue:
    shape = self.shape
    dim %= len(shape)
    start, end = slice_bounds(shape[dim], start, end)
    if src.shape[dim] == 0 or src.dtype != self.dtype:
        return lowering.compute(lowering.out, self.load) if src.shape[dim] == 0 else NotImplemented

    def body(index: IndexTuple) -> Expr:
        position = index[dim]
        mask = ex.both(
            ex.at_least(position, start) if start != 0 else None, ex.below(position, end) if end != shape[dim] else None
        )
        inner = add(position, mul(start, -1))
        if step != 1:
            phase = Compute("eq", (as_index(mod(inner, step)), as_index(0)), "bool")
            mask = ex.both(mask, phase)
            inner = floordiv(inner, step)
        written = src.load((*index[:dim], inner, *index[dim + 1 :]), mask)
        return written if mask is None else ex.where(mask, written, self.load(index))

    return lowering.compute(lowering.out, body)


@rule("select_scatter")
def _select_scatter(lowering: Lowering, self: TensorValue, src: TensorValue, dim: int, index: Size) -> TensorValue:
    if src.dtype != self.dtype:
        return NotImplemented
    dim %= len(self.shape)
    chosen = add(index, self.shape[dim]) if isinstance(index, int) and index < 0 else index

    def body(point: IndexTuple) -> Expr:
        mask = Compute("eq", (as_index(point[dim]), as_index(chosen)), "bool")
        return ex.where(mask, src.load(point[:dim] + point[dim + 1 :]), self.load(point))

    return lowering.compute(lowering.out, body)


@rule("as_strided_scatter")
def _as_strided_scatter(lowering: Lowering, self: TensorValue, src: TensorValue, size: tuple[Size, ...],
                        stride: tuple[Size, ...], storage_offset: Size | None = None) -> TensorValue:  # fmt: skip
    """Offsets count from the beginning of a storage, which is not where the planned buffer of a value begins."""
    ref = self.used().ref
    offset: Size = 0
    if storage_offset is not None:
        offset = add(add(storage_offset, -lowering.storage_offsets.get(ref.buffer, 0)), mul(ref.offset, -1))
    dtype, shape, strides = lowering.out
    if (
        offset == 0
        and src.dtype == self.dtype
        and dtype in NATIVE
        and strides == contiguous_strides(shape)
        and tuple(stride) == contiguous_strides(tuple(size))
        and product(size) == product(shape)
    ):  # all of it is written
        place = reshape_map(src.shape, shape)
        return lowering.compute(lowering.out, lambda index: src.load(place(index)))
    made = lowering.new_buffer(lowering.out)
    given = lowering.extern_argument((self, src, tuple(size), tuple(stride), offset))
    lowering.items.append(
        Extern("lampwork::as_strided_scatter.default", given, (), (made.ref.buffer,), None, (), lowering.origin)
    )
    return made


@rule("diagonal_scatter")
def _diagonal_scatter(
    lowering: Lowering, self: TensorValue, src: TensorValue, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> TensorValue:
    rank = len(self.shape)
    dim1, dim2 = dim1 % rank, dim2 % rank
    if src.dtype != self.dtype or src.shape[-1] == 0:
        return NotImplemented
    rest = [d for d in range(rank) if d not in (dim1, dim2)]

    def body(index: IndexTuple) -> Expr:
        mask, position = place_on_diagonal(index[dim1], index[dim2], offset, src.shape[-1])
        written = src.load((*[index[d] for d in rest], position), mask)
        return ex.where(mask, written, self.load(index))

    return lowering.compute(lowering.out, body)
