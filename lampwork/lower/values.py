"""`TensorValue`: a graph value during lowering, as a view of a buffer; and the index spaces of loop nests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from lampwork.errors import CompileError
from lampwork.ir.dtype import is_in_range
from lampwork.ir.equal_sizes import are_equal
from lampwork.ir.loops import Axis, Compute, Constant, Expr, Index, Load
from lampwork.ir.program import TensorRef
from lampwork.ir.size import Size, SizeExpr, Symbol, add, bounds, mul

#: What operators take as a number; bool is an int. Complex numbers meet no kernel.
Number = int | float | SizeExpr
IndexTuple = tuple[Size, ...]
IndexMap = Callable[[IndexTuple], IndexTuple]


class CannotLoad(Exception):
    """Kernels cannot do what a rule wants: the value's index is no index arithmetic on its buffer, or the order of
    stores shows. The operator goes through ATen."""


class TensorMeta(NamedTuple):
    """`dtype`, `shape` and `strides` (elements) of a tensor."""

    dtype: str
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]


@dataclass(eq=False, slots=True)
class Known:
    """Elements that depend on their index alone (literals, ranges, masks made of them): consumers compute them anew
    instead of loading them. `buffer_needed`: someone does read the buffer, so the nest that fills it must stay."""

    at: Callable[[IndexTuple], Expr]
    buffer_needed: bool = False


@dataclass(eq=False, slots=True)
class TensorValue:
    """A tensor that is a strided view (`ref`) of one buffer.

    `index_map` turns an index of the view into an index of the buffer's dimensions (None: they are the same).
    `stored_dtype` is the buffer's element type, which differs from `ref.dtype` for `view(dtype)`.
    `known` (with `known_map`, the view's index as an index of the known tensor) replaces loads where it can.
    """

    ref: TensorRef
    index_map: IndexMap | None = None
    stored_dtype: str = ""
    known: Known | None = None
    known_map: IndexMap | None = None

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
        if self.known is not None:
            if not indirect:
                value = self.known.at(index if self.known_map is None else self.known_map(index))
                if mask is None:
                    return value
                if is_closed(value):  # its own indices may decide conditions that others leave open
                    return Compute("where", (mask, value, Constant(other, ref.dtype)), ref.dtype)
            self.known.buffer_needed = True
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
        if self.known is None:
            return TensorValue(new, composed, self.stored_dtype)
        known_map = self.known_map
        if index_map is not None:
            known_map = index_map if known_map is None else (lambda index, to=known_map: to(index_map(index)))
        return TensorValue(new, composed, self.stored_dtype, self.known, known_map)

    def used(self) -> TensorValue:
        """This value, whose buffer is read by other means than `load`."""
        if self.known is not None:
            self.known.buffer_needed = True
        return self


#: What a rule returns, or `NotImplemented`; None for an output that nobody reads.
Result = TensorValue | tuple[TensorValue | None, ...]


def is_closed(value: Expr) -> bool:
    """Whether `value` is small and reads no buffer."""
    budget = 24
    stack = [value]
    while stack:
        here = stack.pop()
        budget -= 1
        if type(here) is Compute:
            stack.extend(here.args)
        elif not isinstance(here, (Constant, Index)):
            return False
        if budget < 0:
            return False
    return True


# Index spaces ----------------------------------------

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
        kept_axes: list[Axis] = []
        reduced_axes: list[Axis] = []
        index: list[Size] = []
        kept: list[Size] = []
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


def may_overflow(value: object, dtype: str) -> bool:
    """Whether `value` is a tensor of which eager takes the number, and refuses one that does not fit into `dtype`."""
    return type(value) is TensorValue and not is_in_range(value.dtype, dtype)


def broadcast_index(index: IndexTuple, target: tuple[Size, ...], shape: tuple[Size, ...]) -> IndexTuple:
    """The index of a tensor of `shape`, broadcast to `target`, at `index` of `target`.

    Raises `CompileError` where nothing says that an extent is 1 or the one that is wanted.
    """
    if shape == target:
        return index
    missing = len(target) - len(shape)
    place = list(index[missing:])
    for k, extent in enumerate(shape):
        wanted = target[missing + k]
        if extent == 1:
            place[k] = 0 if wanted != 1 else place[k]
        elif extent != wanted and not are_equal(extent, wanted):
            raise CompileError("lower", f"{extent} elements are broadcast to {wanted}")
    return tuple(place)
