"""Reading where tensors say: embedding, advanced indexing, gather and their kin; `scatter.py` has the writing.

An out-of-range index raises what eager raises: a nest folds `any(index < low or index >= size)` into a bool, and a
`Check` item makes the host raise when it is true, before results are returned and inputs written. The kernels that load
with the index clamp it, so they may run before the check is read. Where the bounds of the index are known (ranges) both
go away. Error types are eager's; messages are close to eager's but do not name the offending value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lampwork.ir.dtype import FLOATING
from lampwork.ir.loops import Compute, Constant, Expr, Index
from lampwork.ir.program import CheckError
from lampwork.ir.size import Size, Symbol, add, bounds, mul, product
from lampwork.lower import expressions as ex
from lampwork.lower.expressions import as_index
from lampwork.lower.lower import Lowering
from lampwork.lower.nests import Checked
from lampwork.lower.rules import rule
from lampwork.lower.values import CannotLoad, IndexTuple, TensorValue, broadcast_index, grid
from lampwork.lower.view import reshape_map

Position = Callable[[IndexTuple], Expr]


def checked_position(
    lowering: Lowering, index: TensorValue, extent: Size, wrap: bool, message: str, error: CheckError = "IndexError"
) -> Position:
    """`point -> index[point]` as an int64 in [0, extent), with a check where it cannot be proven.

    `wrap`: negative indices count from the end.
    """
    if index.dtype not in ("int64", "int32"):
        raise CannotLoad("index type")
    value: Position = lambda point: ex.cast(index.load(point), "int64")
    size = as_index(extent)
    zero = ex.constant(0, "int64")
    smallest = bounds(extent)[0]
    if 0 in index.shape:
        return value
    known = known_bounds(value(grid(index.shape)[1]))
    if known is not None and known[0] >= 0 and known[1] < smallest:
        return value
    if smallest < 1:
        raise CannotLoad("an index into a dimension that may be empty")
    low = as_index(mul(extent, -1)) if wrap else zero

    def failed(point: IndexTuple) -> Expr:
        loaded = value(point)
        return Compute("or", (ex.compare("lt", loaded, low), ex.compare("ge", loaded, size)), "bool")

    in_range: Checked = lambda loaded, point: loaded
    if known is None or known[0] < (-smallest if wrap else 0) or known[1] >= smallest:
        in_range = lowering.check(index.shape, failed, message, error)

    def position(point: IndexTuple) -> Expr:
        loaded = in_range(value(point), point)
        if wrap:
            loaded = ex.where(ex.compare("lt", loaded, zero), ex.add(loaded, size), loaded)
        return clamped(loaded, extent)

    return position


def clamped(position: Expr, extent: Size) -> Expr:
    """`position` kept in [0, extent). Raises `CannotLoad` where the dimension may be empty: nothing is inside of it."""
    if bounds(extent)[0] < 1:
        raise CannotLoad("an index into a dimension that may be empty")
    return ex.minimum(ex.maximum(position, ex.constant(0, "int64")), as_index(add(extent, -1)))


def known_bounds(value: Expr) -> tuple[int, int] | None:
    """Inclusive bounds of an integer that is index arithmetic."""
    if type(value) is Index:
        return bounds(value.value)
    return (value.value, value.value) if type(value) is Constant else None  # type: ignore[return-value]


def bind(symbol: Symbol, position: Expr, extent: Size) -> tuple[Size, tuple[tuple[str, Expr], ...]]:
    """The index that `position` denotes: index arithmetic as it is, anything else as `symbol` with its binding."""
    known = known_bounds(position)
    if known is not None and known[0] >= 0 and known[1] < bounds(extent)[0]:
        return position.value, ()  # type: ignore[union-attr, return-value]
    return symbol, ((symbol.name, position),)


def fresh_symbol(lowering: Lowering, extent: Size) -> Symbol:
    """A symbol for a loaded index, unique in the program so that nests can be inlined into each other."""
    lowering.symbol_count += 1
    return Symbol(f"g{lowering.symbol_count}", 0, max(bounds(extent)[1] - 1, 0))


# Reading ----------------------------------------


@rule("embedding")
def _embedding(
    lowering: Lowering,
    weight: TensorValue,
    indices: TensorValue,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> TensorValue:
    rows = weight.shape[0]
    position = checked_position(lowering, indices, rows, False, "index out of range in self")
    symbol = fresh_symbol(lowering, rows)

    def body(index: IndexTuple) -> Expr:
        row, binding = bind(symbol, position(index[:-1]), rows)
        return weight.load((row, index[-1]), indirect=binding)

    return lowering.compute(lowering.out, body)


@rule("index_select")
def _index_select(lowering: Lowering, self: TensorValue, dim: int, index: TensorValue) -> TensorValue:
    if not index.shape:
        return NotImplemented
    if not self.shape:
        checked_position(lowering, index, 1, False, "index out of range in self")
        return lowering.compute(lowering.out, lambda point: self.load(()))
    dim %= len(self.shape)
    position = checked_position(lowering, index, self.shape[dim], False, "index out of range in self")
    symbol = fresh_symbol(lowering, self.shape[dim])

    def body(point: IndexTuple) -> Expr:
        row, binding = bind(symbol, position((point[dim],)), self.shape[dim])
        return self.load((*point[:dim], row, *point[dim + 1 :]), indirect=binding)

    return lowering.compute(lowering.out, body)


@rule("gather")
def _gather(
    lowering: Lowering, self: TensorValue, dim: int, index: TensorValue, sparse_grad: bool = False
) -> TensorValue:
    if not self.shape and 0 not in index.shape:
        message = "index out of bounds for dimension 0 with size 1"
        checked_position(lowering, index, 1, False, message, "RuntimeError")
        return lowering.compute(lowering.out, lambda point: self.load(()))
    if not index.shape or 0 in index.shape:
        return NotImplemented
    dim %= len(self.shape)
    message = f"index out of bounds for dimension {dim} with size {self.shape[dim]}"
    position = checked_position(lowering, index, self.shape[dim], False, message, "RuntimeError")
    symbol = fresh_symbol(lowering, self.shape[dim])

    def body(point: IndexTuple) -> Expr:
        row, binding = bind(symbol, position(point), self.shape[dim])
        return self.load((*point[:dim], row, *point[dim + 1 :]), indirect=binding)

    return lowering.compute(lowering.out, body)


@rule("take")
def _take(lowering: Lowering, self: TensorValue, index: TensorValue) -> TensorValue:
    """Elements by their row-major position."""
    if 0 in self.shape or 0 in index.shape:
        return NotImplemented
    count = product(self.shape)
    position = checked_position(lowering, index, count, True, "out of range: tried to access an element past the last")
    symbol = fresh_symbol(lowering, count)
    back = reshape_map(self.shape, (count,))

    def body(point: IndexTuple) -> Expr:
        flat, binding = bind(symbol, position(point), count)
        return self.load(back((flat,)), indirect=binding)

    return lowering.compute(lowering.out, body)


class AdvancedIndex:
    """`self[indices]` with index tensors and Nones: the result's shape, and where each point of it lies in `self`."""

    def __init__(self, lowering: Lowering, shape: tuple[Size, ...], indices: Sequence[TensorValue | None]) -> None:
        indexed = [k for k, index in enumerate(indices) if index is not None]
        tensors = [index for index in indices if index is not None]
        self.broadcast = broadcast_shapes([tensor.shape for tensor in tensors])
        rest = [k for k in range(len(shape)) if k not in indexed]
        adjacent = indexed == list(range(indexed[0], indexed[-1] + 1))
        # Adjacent index tensors put their dimensions in their place; otherwise these come first.
        self.start = len([k for k in rest if k < indexed[0]]) if adjacent else 0
        self.shape = (
            *[shape[k] for k in rest[: self.start]], *self.broadcast, *[shape[k] for k in rest[self.start :]]
        )  # fmt: skip
        self.rest, self.rank, self.source = rest, len(shape), shape
        self.parts: list[tuple[int, Symbol, TensorValue, Position]] = []
        for k, tensor in zip(indexed, tensors):
            message = f"index out of bounds for dimension {k} with size {shape[k]}"
            position = checked_position(lowering, tensor, shape[k], True, message)
            self.parts.append((k, fresh_symbol(lowering, shape[k]), tensor, position))

    def locate(self, point: IndexTuple) -> tuple[IndexTuple, tuple[tuple[str, Expr], ...]]:
        """The index into `self` of a point of the result, with the bindings of its symbols."""
        width = len(self.broadcast)
        inner = point[self.start : self.start + width]
        outer = point[: self.start] + point[self.start + width :]
        index: list[Size] = [0] * self.rank
        for k, i in zip(self.rest, outer):
            index[k] = i
        bindings: tuple[tuple[str, Expr], ...] = ()
        for k, symbol, tensor, position in self.parts:
            value = position(broadcast_index(inner, self.broadcast, tensor.shape))
            index[k], binding = bind(symbol, value, self.source[k])
            bindings += binding
        return tuple(index), bindings


def broadcast_shapes(shapes: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    rank = max(len(shape) for shape in shapes)
    result: list[Size] = [1] * rank
    for shape in shapes:
        for k, extent in enumerate(shape, rank - len(shape)):
            if extent != 1:
                result[k] = extent
    return tuple(result)


def integer_indices(indices: Sequence[TensorValue | None]) -> bool:
    tensors = [index for index in indices if index is not None]
    return bool(tensors) and all(tensor.dtype in ("int64", "int32") for tensor in tensors)


@rule("index.Tensor", "_unsafe_index.Tensor")
def _index(lowering: Lowering, self: TensorValue, indices: Sequence[TensorValue | None]) -> TensorValue:
    if not integer_indices(indices):
        return NotImplemented
    if 0 in lowering.out.shape or 0 in self.shape:
        return NotImplemented
    advanced = AdvancedIndex(lowering, self.shape, indices)

    def body(point: IndexTuple) -> Expr:
        where, bindings = advanced.locate(point)
        return self.load(where, indirect=bindings)

    return lowering.compute(lowering.out, body)


# Negative log likelihood: a gather of the target's entry, weighted, then a mean


@rule("nll_loss_forward", "nll_loss2d_forward")
def _nll_loss(
    lowering: Lowering,
    self: TensorValue,
    target: TensorValue,
    weight: TensorValue | None,
    reduction: int,
    ignore_index: int,
) -> tuple[TensorValue | None, ...]:
    shape = self.shape
    if self.dtype not in FLOATING or target.dtype != "int64" or 0 in shape or 0 in target.shape:
        return NotImplemented
    batched = len(shape) > 1
    classes = shape[1] if batched else shape[0]
    accumulator = "float64" if self.dtype == "float64" else "float32"
    ignored = as_index(ignore_index)
    space = target.shape
    if bounds(classes)[0] < 1 or (not batched and space not in ((), (1,))):
        return NotImplemented

    def is_ignored(point: IndexTuple) -> Expr:
        return ex.compare("eq", target.load(point), ignored)

    def failed(point: IndexTuple) -> Expr:
        wanted = target.load(point)
        outside = Compute(
            "or",
            (ex.compare("lt", wanted, ex.constant(0, "int64")), ex.compare("ge", wanted, as_index(classes))),
            "bool",
        )
        return Compute("and", (Compute("not", (is_ignored(point),), "bool"), outside), "bool")

    in_range = lowering.check(space, failed, "Target is out of bounds.", "IndexError")
    symbol = fresh_symbol(lowering, classes)
    one = ex.constant(1, accumulator)

    def binding(point: IndexTuple) -> Any:
        return ((symbol.name, clamped(in_range(target.load(point), point), classes)),)

    def weight_at(point: IndexTuple) -> Expr:
        value = ex.cast(weight.load((symbol,), indirect=binding(point)), accumulator) if weight is not None else one
        return ex.where(is_ignored(point), ex.constant(0, accumulator), value)

    def loss_at(point: IndexTuple) -> Expr:
        where = (point[0], symbol, *point[1:]) if batched else (symbol,)
        value = ex.unary("neg", ex.cast(self.load(where, indirect=binding(point)), accumulator))
        if weight is not None:
            value = ex.mul(value, ex.cast(weight.load((symbol,), indirect=binding(point)), accumulator))
        if not batched:  # the loss of one point is a sum even where none is asked for, and no sum is -0
            value = ex.add(ex.constant(0, accumulator), value)
        return ex.where(is_ignored(point), ex.constant(0, accumulator), value)

    out, total_weight = lowering.out
    dims = range(len(space))
    if reduction == 0:
        zero = ex.constant(0, accumulator)
        return (
            lowering.compute(out, loss_at, "0"),
            lowering.compute(total_weight, lambda point: zero, "1") if lowering.needed(1) else None,
        )
    losses = lowering.reduce("sum", space, dims, loss_at, accumulator, "sum")
    if reduction != 1 and not lowering.needed(1):
        return lowering.compute(out, lambda point: losses.load(()), "0"), None
    weights = lowering.reduce("sum", space, dims, weight_at, accumulator, "weight")
    mean = reduction == 1
    first = lowering.compute(
        out, lambda point: ex.div(losses.load(()), weights.load(())) if mean else losses.load(()), "0"
    )
    second = lowering.compute(total_weight, lambda point: weights.load(()), "1") if lowering.needed(1) else None
    return first, second
