"""`TensorValue`: a graph value during lowering, as a view of a buffer; and the index spaces of loop nests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from lampwork.ir.loops import Axis, Compute, Expr, Load
from lampwork.ir.program import TensorRef
from lampwork.ir.size import Size, Symbol, add, bounds, mul

IndexTuple = tuple[Size, ...]
IndexMap = Callable[[IndexTuple], IndexTuple]


class CannotLoad(Exception):
    """The value's index cannot be written as index arithmetic on its buffer; its consumer goes through ATen."""


class TensorMeta(NamedTuple):
    """`dtype`, `shape` and `strides` (elements) of a tensor."""

    dtype: str
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]


@dataclass(eq=False, slots=True)
class TensorValue:
    """A tensor that is a strided view (`ref`) of one buffer.

    `index_map` turns an index of the view into an index of the buffer's dimensions (None: they are the same).
    `stored_dtype` is the buffer's element type, which differs from `ref.dtype` for `view(dtype)`.
    `bounds`: inclusive bounds of an integer value, where known; they make index checks unnecessary.
    """

    ref: TensorRef
    index_map: IndexMap | None = None
    stored_dtype: str = ""
    bounds: tuple[int, int] | None = None

    @property
    def dtype(self) -> str:
        return self.ref.dtype

    @property
    def shape(self) -> tuple[Size, ...]:
        return self.ref.shape

    def load(
        self,
        index: IndexTuple,
        mask: Expr | None = None,
        other: bool | int | float = 0,
        indirect: tuple[tuple[str, Expr], ...] = (),
    ) -> Expr:
        """The element at `index`. Where `mask` is false nothing is read and the value is `other`.

        Raises `CannotLoad` (see there).
        """
        ref = self.ref
        if self.index_map is not None:
            index = self.index_map(index)
        stored = self.stored_dtype
        if not stored or stored == ref.dtype:
            return Load(ref.buffer, index, ref.dtype, indirect, mask, other)
        if mask is not None:
            raise CannotLoad("masked load of a reinterpreted value")
        return Compute("bitcast", (Load(ref.buffer, index, stored, indirect),), ref.dtype)

    def view(
        self, shape: tuple[Size, ...], strides: tuple[Size, ...], offset: Size, index_map: IndexMap | None
    ) -> TensorValue:
        """A view of this view. `offset` counts from this view's first element; `index_map` leads to this view's index
        (None: unchanged)."""
        ref = self.ref
        inner = self.index_map
        if index_map is None:
            composed = inner
        elif inner is None:
            composed = index_map
        else:
            composed = lambda index: inner(index_map(index))
        new = TensorRef(ref.buffer, ref.dtype, shape, strides, add(ref.offset, offset) if offset else ref.offset)
        return TensorValue(new, composed, self.stored_dtype, self.bounds)


# Index spaces ------------------------------------------------------------------------------------------------------------

_symbols: dict[tuple[str, Size], Symbol] = {}
_grids: dict[tuple[Size, ...], tuple[tuple[Axis, ...], IndexTuple]] = {}
_reduction_grids: dict[tuple, tuple] = {}


def loop_symbol(name: str, extent: Size) -> Symbol:
    key = (name, extent)
    found = _symbols.get(key)
    if found is None:
        if len(_symbols) > 20000:
            _symbols.clear()
        found = _symbols[key] = Symbol(name, 0, max(bounds(extent)[1] - 1, 0))
    return found


def grid(shape: tuple[Size, ...]) -> tuple[tuple[Axis, ...], IndexTuple]:
    """Axes i0, i1, ... over `shape` and the index they form. Dimensions of size 1 get no axis: their index is 0."""
    found = _grids.get(shape)
    if found is None:
        if len(_grids) > 5000:
            _grids.clear()
        axes = tuple(Axis(f"i{k}", extent) for k, extent in enumerate(shape) if extent != 1)
        index = tuple(loop_symbol(f"i{k}", extent) if extent != 1 else 0 for k, extent in enumerate(shape))
        found = _grids[shape] = (axes, index)
    return found


def reduction_grid(
    shape: tuple[Size, ...], dims: frozenset[int]
) -> tuple[tuple[Axis, ...], tuple[Axis, ...], IndexTuple, IndexTuple]:
    """Axes that stay, axes reduced over `dims` of `shape`, the index of the whole and of the part that stays."""
    key = (shape, dims)
    found = _reduction_grids.get(key)
    if found is None:
        if len(_reduction_grids) > 5000:
            _reduction_grids.clear()
        kept_axes, reduced_axes, index, kept = [], [], [], []
        for k, extent in enumerate(shape):
            reduced = k in dims
            name = f"{'r' if reduced else 'i'}{k}"
            symbol: Size = loop_symbol(name, extent) if extent != 1 else 0
            index.append(symbol)
            if not reduced:
                kept.append(symbol)
            if extent != 1:
                (reduced_axes if reduced else kept_axes).append(Axis(name, extent))
        found = _reduction_grids[key] = (tuple(kept_axes), tuple(reduced_axes), tuple(index), tuple(kept))
    return found


def contiguous_strides(shape: tuple[Size, ...]) -> tuple[Size, ...]:
    """Row-major strides; a dimension of size 0 counts as 1, as ATen does."""
    strides: list[Size] = []
    step: Size = 1
    for extent in reversed(shape):
        strides.append(step)
        step = mul(step, extent) if extent != 0 else step
    return tuple(reversed(strides))


def broadcast_index(index: IndexTuple, target: tuple[Size, ...], shape: tuple[Size, ...]) -> IndexTuple:
    """The index of a tensor of `shape`, broadcast to `target`, at `index` of `target`."""
    if shape == target:
        return index
    missing = len(target) - len(shape)
    return tuple(
        0 if extent == 1 and target[missing + k] != 1 else index[missing + k] for k, extent in enumerate(shape)
    )
