"""View operators: no buffer, no nest. The result is an index map of the argument and a strided view of its buffer.

%a = permute(%x, [1, 0])    load (i, j) of %a is load (j, i) of %x;  extern operators see x(stride permuted)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from lampwork.errors import CompileError
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.program import TensorRef
from lampwork.ir.size import Size, add, bounds, exact_quotient, floordiv, maximum, minimum, mod, mul, product
from lampwork.lower.lower import Lowering
from lampwork.lower.nests import dtype_name
from lampwork.lower.rules import view_rule
from lampwork.lower.values import CannotLoad, IndexMap, IndexTuple, TensorValue

# Reshape ----------------------------------------

#: One piece of a reshape: dimensions [a, b) of the old shape become dimensions [c, d) of the new.
Piece = tuple[int, int, int, int]
_pieces: dict[tuple, tuple[Piece, ...]] = {}


def reshape_pieces(old: tuple[Size, ...], new: tuple[Size, ...]) -> tuple[Piece, ...]:
    """The finest split of a reshape into independent pieces of equal numel, from the left."""
    key = (old, new)
    found = _pieces.get(key)
    if found is not None:
        return found
    pieces: list[Piece] = []
    i = j = 0
    while i < len(old) or j < len(new):
        a, c = i, j
        # A dimension kept as it is.
        if i < len(old) and j < len(new) and old[i] == new[j]:
            i, j = i + 1, j + 1
        else:
            left: Size = 1
            right: Size = 1
            if i < len(old):
                left, i = old[i], i + 1
            if j < len(new):
                right, j = new[j], j + 1
            while left != right:
                if isinstance(left, int) and isinstance(right, int):
                    takes_left = left < right
                else:  # of a multiple and its divisor the latter takes another dimension
                    is_multiple = right != 0 and exact_quotient(left, right) is not None
                    takes_left = not is_multiple and not isinstance(right, int)
                if i < len(old) and (takes_left or j >= len(new)):
                    left, i = mul(left, old[i]), i + 1
                elif j < len(new):
                    right, j = mul(right, new[j]), j + 1
                else:
                    raise CannotLoad("shapes of unequal size")
        pieces.append((a, i, c, j))
    if len(_pieces) > 5000:
        _pieces.clear()
    _pieces[key] = tuple(pieces)
    return _pieces[key]


def reshape_map(old: tuple[Size, ...], new: tuple[Size, ...]) -> IndexMap:
    """index of the new shape -> index of the old shape, both row-major."""
    pieces = reshape_pieces(old, new)

    def index_map(index: IndexTuple) -> IndexTuple:
        result: list[Size] = []
        for a, b, c, d in pieces:
            if b - a == 1 and d - c == 1:
                result.append(index[c])
                continue
            if b == a:  # new dimensions of size 1
                continue
            flat: Size = 0
            for k in range(c, d):
                if new[k] != 1:
                    flat = add(mul(flat, new[k]), index[k])
            step: Size = product(old[a:b])
            first = True
            for k in range(a, b):
                extent = old[k]
                if extent == 1:
                    result.append(0)
                    continue
                value = flat if first else mod(flat, step)
                step = floordiv(step, extent)
                result.append(floordiv(value, step) if step != 1 else value)
                first = False
        return tuple(result)

    return index_map


def reshape_strides(old: tuple[Size, ...], strides: tuple[Size, ...], new: tuple[Size, ...]) -> tuple[Size, ...] | None:
    """Strides of the reshaped view, or None where the memory does not allow a view (ATen's computeStride)."""
    key = (old, strides, new)
    if key not in _reshape_strides:
        if len(_reshape_strides) > 5000:
            _reshape_strides.clear()
        _reshape_strides[key] = _compute_strides(old, strides, new)
    return _reshape_strides[key]


_reshape_strides: dict[tuple, tuple[Size, ...] | None] = {}


def _compute_strides(
    old: tuple[Size, ...], strides: tuple[Size, ...], new: tuple[Size, ...]
) -> tuple[Size, ...] | None:
    result: list[Size] = []
    for a, b, c, d in reshape_pieces(old, new):
        kept = [(old[k], strides[k]) for k in range(a, b) if old[k] != 1]
        for (_, outer_stride), (inner, inner_stride) in zip(kept, kept[1:]):
            if outer_stride != mul(inner, inner_stride):
                return None
        step: Size = kept[-1][1] if kept else 1
        piece: list[Size] = []
        for k in range(d - 1, c - 1, -1):
            piece.append(step)
            step = mul(step, new[k])
        result.extend(reversed(piece))
    return tuple(result)


def reshaped(lowering: Lowering, value: TensorValue, shape: tuple[Size, ...], strides: tuple[Size, ...]) -> TensorValue:
    """`value` in row-major order as `shape`; `strides` are eager's.

    A dimension of size 1 has eager's stride: no element's place depends on it, and the program can read it.
    """
    old = value.shape
    if old == shape and (value.ref.strides == strides or 1 not in old):
        return value
    if 0 in old:
        # Nothing is ever loaded; ATen may be given the buffer.
        ref = value.used().ref
        return TensorValue(TensorRef(ref.buffer, value.dtype, shape, strides, ref.offset), _no_elements)
    ours = reshape_strides(old, value.ref.strides, shape)
    if ours is None:
        return NotImplemented
    ours = tuple(theirs if size == 1 else own for size, own, theirs in zip(shape, ours, strides, strict=True))
    return value.view(shape, ours, 0, reshape_map(old, shape))


def _no_elements(index: IndexTuple) -> IndexTuple:
    raise CannotLoad("reshape of no elements")


@view_rule("view", "_unsafe_view", "reshape", "_reshape_alias")
def _view(lowering: Lowering, self: TensorValue, size: tuple[Size, ...], *strides: object) -> TensorValue:
    return reshaped(lowering, self, lowering.out.shape, lowering.out.strides)


# Permutations and dimensions of size 1 ----------------------------------------


@view_rule("alias", "detach", "lift_fresh", "lift")
def _alias(lowering: Lowering, self: TensorValue) -> TensorValue:
    return self


def permuted(self: TensorValue, dims: Sequence[int]) -> TensorValue:
    rank = len(self.shape)
    order = [d % rank for d in dims]
    inverse = [0] * rank
    for position, d in enumerate(order):
        inverse[d] = position
    shape, strides = self.shape, self.ref.strides
    return self.view(
        tuple([shape[d] for d in order]),
        tuple([strides[d] for d in order]),
        0,
        lambda index: tuple([index[k] for k in inverse]),
    )


@view_rule("permute")
def _permute(lowering: Lowering, self: TensorValue, dims: Sequence[int]) -> TensorValue:
    return permuted(self, dims) if self.shape else self


@view_rule("transpose.int")
def _transpose(lowering: Lowering, self: TensorValue, dim0: int, dim1: int) -> TensorValue:
    rank = len(self.shape)
    if rank == 0:
        return self
    order = list(range(rank))
    order[dim0 % rank], order[dim1 % rank] = order[dim1 % rank], order[dim0 % rank]
    return permuted(self, order)


@view_rule("t", "numpy_T", "matrix_H", "mT")
def _t(lowering: Lowering, self: TensorValue) -> TensorValue:
    rank = len(self.shape)
    return self if rank < 2 else permuted(self, (*range(rank - 2), rank - 1, rank - 2))


@view_rule("unsqueeze")
def _unsqueeze(lowering: Lowering, self: TensorValue, dim: int) -> TensorValue:
    rank = len(self.shape)
    dim %= rank + 1
    shape, strides = self.shape, self.ref.strides
    step = mul(shape[dim], strides[dim]) if dim < rank else 1
    return self.view(
        (*shape[:dim], 1, *shape[dim:]),
        (*strides[:dim], step, *strides[dim:]),
        0,
        lambda index: index[:dim] + index[dim + 1 :],
    )


@view_rule("squeeze", "squeeze.dim", "squeeze.dims")
def _squeeze(lowering: Lowering, self: TensorValue, dim: int | tuple[int, ...] | None = None) -> TensorValue:
    shape = self.shape
    rank = len(shape)
    candidates = range(rank) if dim is None else [d % max(rank, 1) for d in ((dim,) if isinstance(dim, int) else dim)]
    gone = {d for d in candidates if d < rank and shape[d] == 1}
    kept = [d for d in range(rank) if d not in gone]

    def index_map(index: IndexTuple) -> IndexTuple:
        rest = iter(index)
        return tuple([0 if d in gone else next(rest) for d in range(rank)])

    strides = self.ref.strides
    return self.view(tuple([shape[d] for d in kept]), tuple([strides[d] for d in kept]), 0, index_map)


@view_rule("expand")
def _expand(lowering: Lowering, self: TensorValue, size: tuple[Size, ...], implicit: bool = False) -> TensorValue:
    target = lowering.out.shape
    shape, strides = self.shape, self.ref.strides
    missing = len(target) - len(shape)
    wide = [extent == 1 and target[missing + k] != 1 for k, extent in enumerate(shape)]
    for place, extent in enumerate(shape):
        if not wide[place] and extent != target[missing + place]:
            raise CompileError("lower", f"{extent} elements are expanded to {target[missing + place]}")
    new_strides = [0 if wide[k] else strides[k] for k in range(len(shape))]
    for place in reversed(range(missing)):  # of size 1: the next extent times its stride (ATen's inferExpandGeometry)
        inside = mul(target[place + 1], new_strides[0]) if new_strides else 0
        new_strides.insert(0, inside if target[place] == 1 else 0)

    def index_map(index: IndexTuple) -> IndexTuple:
        return tuple([0 if wide[k] else index[missing + k] for k in range(len(shape))])

    return self.view(target, tuple(new_strides), 0, index_map)


# Parts ----------------------------------------


def sliced(self: TensorValue, dim: int, start: Size, length: Size, step: int = 1) -> TensorValue:
    """Elements start, start + step, ... of dimension `dim`, `length` of them."""
    shape, strides = self.shape, self.ref.strides
    new_strides = (*strides[:dim], mul(strides[dim], step), *strides[dim + 1 :]) if step != 1 else strides

    def index_map(index: IndexTuple) -> IndexTuple:
        return (*index[:dim], add(mul(index[dim], step), start), *index[dim + 1 :])

    new_shape = (*shape[:dim], length, *shape[dim + 1 :])
    whole = start == 0 and step == 1
    return self.view(new_shape, new_strides, mul(strides[dim], start), None if whole else index_map)


def slice_bounds(extent: Size, start: Any, end: Any) -> tuple[Size, Size]:
    """Python's clamping of slice bounds."""
    start = 0 if start is None else start
    end = extent if end is None else end
    if isinstance(extent, int) and isinstance(start, int) and isinstance(end, int):
        start = min(max(start + extent if start < 0 else start, 0), extent)
        end = min(max(end + extent if end < 0 else end, start), extent)
        return start, end
    return _slice_bound(extent, start), _slice_bound(extent, end)


def _slice_bound(extent: Size, bound: Size) -> Size:
    """Raises `CannotLoad` where it depends on the call's sizes from which end `bound` counts."""
    smallest, largest = bounds(bound)
    if smallest >= 0:
        return minimum(bound, extent)
    if largest < 0:
        return maximum(add(bound, extent), 0)
    raise CannotLoad("a slice from either end")


@view_rule("slice.Tensor")
def _slice(lowering: Lowering, self: TensorValue, dim: int = 0, start: Size | None = None, end: Size | None = None,
           step: int = 1) -> TensorValue:  # fmt: skip
    dim %= len(self.shape)
    start, _ = slice_bounds(self.shape[dim], start, end)
    return sliced(self, dim, start, lowering.out.shape[dim], step)


@view_rule("select.int")
def _select(lowering: Lowering, self: TensorValue, dim: int, index: Size) -> TensorValue:
    return selected(self, dim % len(self.shape), index)


def selected(self: TensorValue, dim: int, position: Size) -> TensorValue:
    shape, strides = self.shape, self.ref.strides
    if isinstance(position, int) and position < 0:
        position = add(position, shape[dim])
    return self.view(
        shape[:dim] + shape[dim + 1 :],
        strides[:dim] + strides[dim + 1 :],
        mul(strides[dim], position),
        lambda index: (*index[:dim], position, *index[dim:]),
    )


@view_rule(
    "split.Tensor", "split_with_sizes", "split.sizes", "chunk", "tensor_split.sections", "unsafe_split.Tensor",
    "unsafe_split_with_sizes", "unsafe_chunk",
)  # fmt: skip
def _split(
    lowering: Lowering, self: TensorValue, sizes: Size | tuple[Size, ...] | int, dim: int = 0
) -> tuple[TensorValue | None, ...]:
    """The lengths are those of the results."""
    dim %= len(self.shape)
    start: Size = 0
    parts = []
    for meta in lowering.out:
        length = meta.shape[dim]
        parts.append(sliced(self, dim, start, length))
        start = add(start, length)
    return tuple(parts)


@view_rule("unbind.int")
def _unbind(lowering: Lowering, self: TensorValue, dim: int = 0) -> tuple[TensorValue | None, ...]:
    dim %= len(self.shape)
    return tuple([selected(self, dim, position) for position in range(len(lowering.out))])


@view_rule("unfold")
def _unfold(lowering: Lowering, self: TensorValue, dimension: int, size: int, step: int) -> TensorValue:
    shape, strides = self.shape, self.ref.strides
    if not shape:
        return self.view((size,), (1,), 0, lambda index: ())
    dimension %= len(shape)
    return self.view(
        lowering.out.shape,
        (*strides[:dimension], mul(strides[dimension], step), *strides[dimension + 1 :], strides[dimension]),
        0,
        lambda index: (
            *index[:dimension],
            add(mul(index[dimension], step), index[-1]),
            *index[dimension + 1 : -1],
        ),
    )


@view_rule("diagonal")
def _diagonal(lowering: Lowering, self: TensorValue, offset: int = 0, dim1: int = 0, dim2: int = 1) -> TensorValue:
    rank = len(self.shape)
    dim1, dim2 = dim1 % rank, dim2 % rank
    row, column = max(-offset, 0), max(offset, 0)
    rest = [d for d in range(rank) if d not in (dim1, dim2)]
    strides = self.ref.strides

    def index_map(index: IndexTuple) -> IndexTuple:
        result: list[Size] = [0] * rank
        for position, d in enumerate(rest):
            result[d] = index[position]
        result[dim1], result[dim2] = add(index[-1], row), add(index[-1], column)
        return tuple(result)

    return self.view(
        lowering.out.shape,
        (*[strides[d] for d in rest], add(strides[dim1], strides[dim2])),
        add(mul(strides[dim1], row), mul(strides[dim2], column)) if lowering.out.shape[-1] != 0 else 0,
        index_map,
    )


@view_rule("view.dtype")
def _view_dtype(lowering: Lowering, self: TensorValue, dtype: torch.dtype) -> TensorValue:
    name = dtype_name(dtype)
    if name == self.dtype:
        return self
    if ITEM_SIZE_BYTES.get(name) != ITEM_SIZE_BYTES.get(self.dtype) or "bool" in (name, self.dtype):
        return NotImplemented
    if name.startswith("complex") or self.dtype.startswith("complex"):  # loops have no complex elements
        return NotImplemented
    ref = self.used().ref
    new = TensorRef(ref.buffer, name, ref.shape, ref.strides, ref.offset)
    return TensorValue(new, self.index_map, self.stored_dtype or self.dtype)


@view_rule("as_strided")
def _as_strided(lowering: Lowering, self: TensorValue, size: tuple[Size, ...], stride: tuple[Size, ...],
                storage_offset: Size | None = None) -> TensorValue:  # fmt: skip
    """Any strided view. Loads turn the element's offset back into an index where the buffer is dense."""
    buffer = lowering.buffers[self.used().ref.buffer]
    # The offset counts from the storage's start, which need not be where the buffer starts.
    base = lowering.storage_offsets.get(buffer.name, 0)
    offset = self.ref.offset if storage_offset is None else add(storage_offset, -base)
    ref = TensorRef(buffer.name, self.dtype, tuple(size), tuple(stride), offset)
    order = sorted(
        (k for k, extent in enumerate(buffer.shape) if extent != 1),
        key=lambda k: bounds(buffer.strides[k])[1],
        reverse=True,
    )
    numel: Size = 1
    for k in reversed(order):
        if buffer.strides[k] != numel:
            return TensorValue(ref, _not_dense, self.stored_dtype)
        numel = mul(numel, buffer.shape[k])
    past = add(offset, mul(numel, -1))
    for extent, step in zip(size, stride):
        past = add(past, mul(add(extent, -1), step))
    if 0 not in size and (bounds(past)[1] >= 0 or bounds(offset)[0] < 0):
        return TensorValue(ref, _not_dense, self.stored_dtype)

    def index_map(index: IndexTuple) -> IndexTuple:
        flat: Size = offset
        for position, step in zip(index, stride):
            flat = add(flat, mul(position, step))
        result: list[Size] = [0] * len(buffer.shape)
        for k in order:
            result[k] = mod(floordiv(flat, buffer.strides[k]), buffer.shape[k])
        return tuple(result)

    return TensorValue(ref, index_map, self.stored_dtype)


def _not_dense(index: IndexTuple) -> IndexTuple:
    raise CannotLoad("strided view of a buffer that is not dense")
