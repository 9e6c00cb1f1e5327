"""Indexing by tensors: embedding, advanced indexing, gather, scatter and their kin.

An out-of-range index raises what eager raises: a nest folds `any(index < low or index >= size)` into a bool, and a
`Check` item makes the host raise when it is true, before results are returned and inputs written. The kernels that load
with the index clamp it, so they may run before the check is read. Where the bounds of the index are known (ranges) both
go away. Error types are eager's; messages are close to eager's but do not name the offending value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from lampwork.ir.dtype import FLOATING
from lampwork.ir.loops import Compute, Constant, Expr, Index, LoopNest, Store
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
    lowering: Lowering, index: TensorValue, extent: Size, wrap: bool, message: str, error: str = "IndexError"
) -> Position:
    """`point -> index[point]` as an int64 in [0, extent), with a check where it cannot be proven.

    `wrap`: negative indices count from the end.
    """
    if index.dtype not in ("int64", "int32") or (isinstance(extent, int) and extent == 0):
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
        return ex.minimum(ex.maximum(loaded, zero), as_index(add(extent, -1)))

    return position


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


_SUMMED_ON_GPUS = frozenset({"float32", "float64", "int32", "int64"})


def partial_store(
    lowering: Lowering,
    target: TensorValue,
    shape: tuple[Size, ...],
    index: Callable[[IndexTuple], tuple[IndexTuple, tuple[tuple[str, Expr], ...]]],
    value: Callable[[IndexTuple], Expr],
    mode: str = "write",
) -> None:
    """For every point of `shape`: `target[index(point)] = value(point)` (or `+=` for mode "add").

    On a GPU points run in no order. Raises `CannotLoad`, for ATen to do it, where that shows: deterministic algorithms
    are asked for, or sums would be rounded to a type that is no type of sums each time.
    """
    if lowering.device != "cpu" and (
        torch.are_deterministic_algorithms_enabled() or (mode == "add" and target.dtype not in _SUMMED_ON_GPUS)
    ):
        raise CannotLoad(f"stores in any order into {target.ref.buffer}")
    if target.known is not None:
        # From here on the elements are not what the first nest wrote.
        target.known.buffer_needed = True
        target.known = None
    axes, point = grid(shape)
    where, indirect = index(point)
    stored = ex.cast(value(point), target.dtype)
    store = Store(target.ref.buffer, where, stored, mode, indirect)  # type: ignore[arg-type]
    lowering.items.append(LoopNest(axes, store, None, True, lowering.origin))


# Reading ----------------------------------------


@rule("embedding")
def _embedding(
    lowering: Lowering,
    weight: TensorValue,
    indices: TensorValue,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    rows = weight.shape[0]
    position = checked_position(lowering, indices, rows, False, "index out of range in self")
    symbol = fresh_symbol(lowering, rows)

    def body(index: IndexTuple) -> Expr:
        row, binding = bind(symbol, position(index[:-1]), rows)
        return weight.load((row, index[-1]), indirect=binding)

    return lowering.compute(lowering.out, body)


@rule("index_select")
def _index_select(lowering: Lowering, self: TensorValue, dim: int, index: TensorValue) -> Any:
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
def _gather(lowering: Lowering, self: TensorValue, dim: int, index: TensorValue, sparse_grad: bool = False) -> Any:
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
def _take(lowering: Lowering, self: TensorValue, index: TensorValue) -> Any:
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


def _integer_indices(indices: Sequence[TensorValue | None]) -> bool:
    tensors = [index for index in indices if index is not None]
    return bool(tensors) and all(tensor.dtype in ("int64", "int32") for tensor in tensors)


@rule("index.Tensor", "_unsafe_index.Tensor")
def _index(lowering: Lowering, self: TensorValue, indices: Sequence[TensorValue | None]) -> Any:
    if not _integer_indices(indices):
        return NotImplemented
    if 0 in lowering.out.shape or 0 in self.shape:
        return NotImplemented
    advanced = AdvancedIndex(lowering, self.shape, indices)

    def body(point: IndexTuple) -> Expr:
        where, bindings = advanced.locate(point)
        return self.load(where, indirect=bindings)

    return lowering.compute(lowering.out, body)


# Writing: a copy of `self`, then a nest that stores into parts of it ----------------------------------------


def _may_add(dtype: str) -> bool:
    """Half types round after every addition in eager; that, and bool, is left to ATen."""
    return dtype not in ("float16", "bfloat16", "bool")


@rule("index_put", "_unsafe_index_put")
def _index_put(
    lowering: Lowering,
    self: TensorValue,
    indices: Sequence[TensorValue | None],
    values: TensorValue,
    accumulate: bool = False,
) -> Any:
    if not _integer_indices(indices) or 0 in self.shape or (accumulate and not _may_add(self.dtype)):
        return NotImplemented
    advanced = AdvancedIndex(lowering, self.shape, indices)
    if 0 in advanced.shape or values.dtype != self.dtype:
        return NotImplemented
    target = lowering.compute(lowering.out, self.load)
    value = lambda point: values.load(broadcast_index(point, advanced.shape, values.shape))
    partial_store(lowering, target, advanced.shape, advanced.locate, value, "add" if accumulate else "write")
    return target


def _replaced(lowering: Lowering, self: TensorValue, value: Callable[[IndexTuple], Expr], mode: str) -> TensorValue:
    """The tensor without dimensions `self` after its element was written or added to."""
    adds = mode == "add"
    return lowering.compute(
        lowering.out, lambda point: ex.add(self.load(()), value(())) if adds else ex.cast(value(()), self.dtype)
    )


def _scatter(
    lowering: Lowering, self: TensorValue, dim: int, index: TensorValue, value: Callable[[IndexTuple], Expr], mode: str
) -> Any:
    if 0 in index.shape or (mode == "add" and not _may_add(self.dtype)):
        return NotImplemented
    if not self.shape:
        message = "index out of bounds for dimension 0 with size 1"
        checked_position(lowering, index, 1, False, message, "RuntimeError")
        return _replaced(lowering, self, value, mode) if not index.shape else NotImplemented
    if not index.shape:
        return NotImplemented
    dim %= len(self.shape)
    message = f"index out of bounds for dimension {dim} with size {self.shape[dim]}"
    position = checked_position(lowering, index, self.shape[dim], False, message, "RuntimeError")
    symbol = fresh_symbol(lowering, self.shape[dim])
    target = lowering.compute(lowering.out, self.load)

    def locate(point: IndexTuple) -> Any:
        return (*point[:dim], symbol, *point[dim + 1 :]), ((symbol.name, position(point)),)

    partial_store(lowering, target, index.shape, locate, value, mode)
    return target


@rule("scatter.src")
def _scatter_src(lowering: Lowering, self: TensorValue, dim: int, index: TensorValue, src: TensorValue) -> Any:
    return _scatter(lowering, self, dim, index, src.load, "write")


@rule("scatter.value")
def _scatter_value(lowering: Lowering, self: TensorValue, dim: int, index: TensorValue, value: Any) -> Any:
    literal = ex.constant(value, self.dtype)
    return _scatter(lowering, self, dim, index, lambda point: literal, "write")


@rule("scatter_add")
def _scatter_add(lowering: Lowering, self: TensorValue, dim: int, index: TensorValue, src: TensorValue) -> Any:
    return _scatter(lowering, self, dim, index, src.load, "add")


def _along(
    lowering: Lowering, self: TensorValue, dim: int, index: TensorValue, shape: tuple, value: Any, mode: str, error: str
) -> Any:
    """Rows of dimension `dim` named by a one-dimensional index."""
    if mode == "add" and not _may_add(self.dtype):
        return NotImplemented
    if not self.shape and shape == () and index.shape in ((), (1,)):
        checked_position(lowering, index, 1, False, "index out of range in self", error)
        return _replaced(lowering, self, value, mode)
    if not self.shape or len(index.shape) != 1 or 0 in shape or len(shape) != len(self.shape):
        return NotImplemented
    dim %= len(self.shape)
    position = checked_position(lowering, index, self.shape[dim], False, "index out of range in self", error)
    symbol = fresh_symbol(lowering, self.shape[dim])
    target = lowering.compute(lowering.out, self.load)

    def locate(point: IndexTuple) -> Any:
        return (*point[:dim], symbol, *point[dim + 1 :]), ((symbol.name, position((point[dim],))),)

    partial_store(lowering, target, shape, locate, value, mode)
    return target


@rule("index_add")
def _index_add(
    lowering: Lowering, self: TensorValue, dim: int, index: TensorValue, source: TensorValue, alpha: Any = 1
) -> Any:
    def value(point: IndexTuple) -> Expr:
        loaded = source.load(point)
        return loaded if alpha == 1 else ex.mul(loaded, ex.like(alpha, loaded))

    return _along(lowering, self, dim, index, source.shape, value, "add", "IndexError")


@rule("index_copy")
def _index_copy(lowering: Lowering, self: TensorValue, dim: int, index: TensorValue, source: TensorValue) -> Any:
    return _along(lowering, self, dim, index, source.shape, source.load, "write", "IndexError")


@rule("index_fill.int_Scalar", "index_fill.int_Tensor")
def _index_fill(lowering: Lowering, self: TensorValue, dim: int, index: TensorValue, value: Any) -> Any:
    if not self.shape and index.shape in ((), (1,)):
        checked_position(lowering, index, 1, True, "index out of range in self")
        return _replaced(lowering, self, lambda point: lowering.operand(value, (), (), self.dtype), "write")
    if len(index.shape) != 1 or not self.shape:
        return NotImplemented
    dim %= len(self.shape)
    shape = (*self.shape[:dim], index.shape[0], *self.shape[dim + 1 :])
    literal = lowering.operand(value, (), (), self.dtype)
    if 0 in shape:
        return NotImplemented
    position = checked_position(lowering, index, self.shape[dim], True, "index out of range in self")
    symbol = fresh_symbol(lowering, self.shape[dim])
    target = lowering.compute(lowering.out, self.load)

    def locate(point: IndexTuple) -> Any:
        return (*point[:dim], symbol, *point[dim + 1 :]), ((symbol.name, position((point[dim],))),)

    partial_store(lowering, target, shape, locate, lambda point: literal)
    return target


@rule("embedding_dense_backward")
def _embedding_backward(
    lowering: Lowering,
    grad_output: TensorValue,
    indices: TensorValue,
    num_weights: Size,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> Any:
    """Rows of the gradient added up where their indices say, in order. A GPU's sums would be in any order: ATen sorts
    the indices there. The forward operator has checked them."""
    if lowering.device != "cpu" or scale_grad_by_freq or not _may_add(grad_output.dtype) or 0 in lowering.out.shape:
        return NotImplemented
    if indices.dtype not in ("int64", "int32") or 0 in indices.shape:
        return NotImplemented
    symbol = fresh_symbol(lowering, num_weights)
    zero = ex.constant(0, grad_output.dtype)
    target = lowering.compute(lowering.out, lambda point: zero)

    def locate(point: IndexTuple) -> Any:
        row = ex.maximum(ex.cast(indices.load(point[:-1]), "int64"), ex.constant(0, "int64"))
        return (symbol, point[-1]), ((symbol.name, ex.minimum(row, as_index(add(num_weights, -1)))),)

    def value(point: IndexTuple) -> Expr:
        if padding_idx < 0:
            return grad_output.load(point)
        row = ex.cast(indices.load(point[:-1]), "int64")
        return ex.where(ex.compare("eq", row, ex.constant(padding_idx, "int64")), zero, grad_output.load(point))

    partial_store(lowering, target, (*indices.shape, lowering.out.shape[1]), locate, value, "add")
    return target


# Negative log likelihood: a gather of the target's entry, weighted, then a mean


@rule("nll_loss_forward", "nll_loss2d_forward")
def _nll_loss(
    lowering: Lowering,
    self: TensorValue,
    target: TensorValue,
    weight: TensorValue | None,
    reduction: int,
    ignore_index: int,
) -> Any:
    shape = self.shape
    if self.dtype not in FLOATING or target.dtype != "int64" or 0 in shape or 0 in target.shape:
        return NotImplemented
    batched = len(shape) > 1
    classes = shape[1] if batched else shape[0]
    accumulator = "float64" if self.dtype == "float64" else "float32"
    ignored = ex.constant(ignore_index, "int64")
    space = target.shape
    if not batched and space not in ((), (1,)):
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
        wanted = ex.maximum(in_range(target.load(point), point), ex.constant(0, "int64"))
        return ((symbol.name, ex.minimum(wanted, as_index(add(classes, -1)))),)

    def weight_at(point: IndexTuple) -> Expr:
        value = ex.cast(weight.load((symbol,), indirect=binding(point)), accumulator) if weight is not None else one
        return ex.where(is_ignored(point), ex.constant(0, accumulator), value)

    def loss_at(point: IndexTuple) -> Expr:
        where = (point[0], symbol, *point[1:]) if batched else (symbol,)
        value = ex.unary("neg", ex.cast(self.load(where, indirect=binding(point)), accumulator))
        if weight is not None:
            value = ex.mul(value, ex.cast(weight.load((symbol,), indirect=binding(point)), accumulator))
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
