"""Writing where tensors say: `index_put`, scatter, `index_add` and their kin.

Each is a copy of `self`, then a nest that stores into parts of it. Indices are checked as in `indexing.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from lampwork.ir.loops import Expr, LoopNest, Store
from lampwork.ir.program import CheckError
from lampwork.ir.size import Size, bounds
from lampwork.lower import expressions as ex
from lampwork.lower.indexing import AdvancedIndex, checked_position, clamped, fresh_symbol, integer_indices
from lampwork.lower.lower import Lowering
from lampwork.lower.rules import rule
from lampwork.lower.values import (
    CannotLoad,
    IndexTuple,
    Number,
    Result,
    TensorValue,
    broadcast_index,
    grid,
    may_overflow,
)

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
    if not lowering.kernels.stores_in_order and (
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
) -> TensorValue:
    if not integer_indices(indices) or 0 in self.shape or (accumulate and not _may_add(self.dtype)):
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
def _scatter_src(lowering: Lowering, self: TensorValue, dim: int, index: TensorValue, src: TensorValue) -> TensorValue:
    return _scatter(lowering, self, dim, index, src.load, "write")


@rule("scatter.value")
def _scatter_value(lowering: Lowering, self: TensorValue, dim: int, index: TensorValue, value: Any) -> TensorValue:
    literal = ex.constant(value, self.dtype)
    return _scatter(lowering, self, dim, index, lambda point: literal, "write")


@rule("scatter_add")
def _scatter_add(lowering: Lowering, self: TensorValue, dim: int, index: TensorValue, src: TensorValue) -> TensorValue:
    return _scatter(lowering, self, dim, index, src.load, "add")


def _along(
    lowering: Lowering,
    self: TensorValue,
    dim: int,
    index: TensorValue,
    shape: tuple,
    value: Any,
    mode: str,
    error: CheckError,
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
    lowering: Lowering, self: TensorValue, dim: int, index: TensorValue, source: TensorValue, alpha: Number = 1
) -> TensorValue:
    def value(point: IndexTuple) -> Expr:
        loaded = source.load(point)
        return loaded if alpha == 1 else ex.mul(loaded, ex.like(alpha, loaded))

    return _along(lowering, self, dim, index, source.shape, value, "add", "IndexError")


@rule("index_copy")
def _index_copy(
    lowering: Lowering, self: TensorValue, dim: int, index: TensorValue, source: TensorValue
) -> TensorValue:
    return _along(lowering, self, dim, index, source.shape, source.load, "write", "IndexError")


@rule("index_fill.int_Scalar", "index_fill.int_Tensor")
def _index_fill(
    lowering: Lowering, self: TensorValue, dim: int, index: TensorValue, value: Number | TensorValue
) -> Result:
    if not self.shape and index.shape in ((), (1,)) and not may_overflow(value, self.dtype):
        checked_position(lowering, index, 1, True, "index out of range in self")
        return _replaced(lowering, self, lambda point: lowering.operand(value, (), (), self.dtype), "write")
    if len(index.shape) != 1 or not self.shape:
        return NotImplemented
    if index.dtype != "int64" or may_overflow(value, self.dtype):  # eager refuses it
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
) -> Result:
    """Rows of the gradient added up where their indices say, in order. A GPU's sums would be in any order: ATen sorts
    the indices there. The forward operator has checked them."""
    ordered = lowering.kernels.stores_in_order
    if not ordered or scale_grad_by_freq or not _may_add(grad_output.dtype) or 0 in lowering.out.shape:
        return NotImplemented
    if indices.dtype not in ("int64", "int32") or 0 in indices.shape or bounds(num_weights)[0] < 1:
        return NotImplemented
    symbol = fresh_symbol(lowering, num_weights)
    zero = ex.constant(0, grad_output.dtype)
    target = lowering.compute(lowering.out, lambda point: zero)

    def locate(point: IndexTuple) -> Any:
        row = clamped(ex.cast(indices.load(point[:-1]), "int64"), num_weights)
        return (symbol, point[-1]), ((symbol.name, row),)

    def value(point: IndexTuple) -> Expr:
        if padding_idx < 0:
            return grad_output.load(point)
        row = ex.cast(indices.load(point[:-1]), "int64")
        return ex.where(ex.compare("eq", row, ex.constant(padding_idx, "int64")), zero, grad_output.load(point))

    partial_store(lowering, target, (*indices.shape, lowering.out.shape[1]), locate, value, "add")
    return target
