"""Operators that make tensors from nothing: constants, ranges, triangles."""

from __future__ import annotations

from typing import Any

from lampwork.ir.dtype import FLOATING
from lampwork.ir.loops import Compute, Expr, Index
from lampwork.ir.number import is_exact
from lampwork.ir.size import Size, SizeExpr, add, floordiv, mul
from lampwork.lower import expressions as ex
from lampwork.lower.expressions import as_index
from lampwork.lower.lower import Lowering
from lampwork.lower.rules import rule
from lampwork.lower.values import IndexTuple, Number, TensorValue


def _fill(lowering: Lowering, value: object) -> TensorValue:
    dtype = lowering.out.dtype
    if isinstance(value, TensorValue):
        return lowering.compute(lowering.out, lambda index: value.load(()))
    if isinstance(value, complex):
        return NotImplemented
    literal = lowering.operand(value, (), (), dtype)
    return lowering.compute(lowering.out, lambda index: literal)


def _filled(value: object, *names: str) -> None:
    @rule(*names)
    def lower_filled(lowering: Lowering, *args: object, **options: object) -> TensorValue:
        return _fill(lowering, value)


_filled(0, "zeros", "zeros_like", "new_zeros")
_filled(1, "ones", "ones_like", "new_ones")
# The contents of an empty tensor are unspecified; usually all of it is overwritten, and then this fill is never run.
_filled(0, "empty.memory_format", "empty_like", "new_empty", "new_empty_strided", "empty_permuted")


@rule("empty_strided")
def _empty_strided(
    lowering: Lowering, size: tuple[Size, ...], stride: tuple[Size, ...], **options: object
) -> TensorValue:
    if lowering.node.meta.get("unread"):
        return lowering.new_buffer(lowering.out, kind="unwritten")
    return _fill(lowering, 0)


@rule("full", "full_like", "new_full")
def _full(lowering: Lowering, first: tuple[Size, ...] | TensorValue, *args: object, fill_value: Number | None = None,
          **options: object) -> TensorValue:  # fmt: skip
    # full(size, value), full_like(self, value), new_full(self, size, value)
    value = args[-1] if args else fill_value
    return _fill(lowering, value)


@rule("fill.Scalar", "fill.Tensor")
def _fill_value(lowering: Lowering, self: TensorValue, value: Number | TensorValue) -> TensorValue:
    return _fill(lowering, value)


@rule("scalar_tensor")
def _scalar_tensor(lowering: Lowering, s: Number, **options: object) -> TensorValue:
    return _fill(lowering, s)


# Ranges ----------------------------------------


def _range(lowering: Lowering, start: Any, step: Any, length: Size) -> TensorValue:
    """start + step * i: integers exactly, floats in float64 as ATen's arange does, on a GPU in their own type."""
    dtype = lowering.out.dtype
    if dtype == "bool":
        return NotImplemented
    wide_enough = dtype == "float64" or dtype == "float32" and lowering.numerics.accumulates_in_double
    if dtype not in FLOATING or wide_enough:  # whole numbers are rounded once, as sums in float64 are
        start, step = (int(each) if type(each) is float and is_exact(each) else each for each in (start, step))
    if all(isinstance(value, (int, SizeExpr)) and not isinstance(value, bool) for value in (start, step)):
        return lowering.compute(lowering.out, lambda index: as_index(add(mul(index[0], step), start)))
    if dtype not in FLOATING:
        return NotImplemented

    wide = "float64" if lowering.numerics.accumulates_in_double or dtype == "float64" else "float32"
    start, step = (_number(each, wide) for each in (start, step))

    def body(index: IndexTuple) -> Expr:
        return _step_along(lowering, start, step, ex.cast(Index(index[0]), wide))

    return lowering.compute(lowering.out, body)


def _number(value: Any, dtype: str) -> Expr:
    return ex.cast(as_index(value), dtype) if isinstance(value, SizeExpr) else ex.constant(value, dtype)


def _step_along(lowering: Lowering, start: Expr, step: Expr, position: Expr) -> Expr:
    """start + step * position, which ATen's kernels for a GPU round once: arange(-2, 1, 0.1) has no 0 there."""
    if lowering.numerics.steps_round_once:
        return ex.fma(step, position, start)
    return ex.add(start, ex.mul(step, position))


@rule("arange", "arange.start", "arange.start_step")
def _arange(lowering: Lowering, first: Number, *args: object, **options: object) -> TensorValue:
    length = lowering.out.shape[0]
    if not args:
        return _range(lowering, 0, 1, length)
    step = args[1] if len(args) > 1 else options.get("step", 1)
    return _range(lowering, first, step, length)


@rule("linspace")
def _linspace(lowering: Lowering, start: Any, end: Any, steps: int, **options: object) -> TensorValue:
    """Counted from the nearer end, as ATen does. Where the number of steps varies, it is two at least (guarded)."""
    dtype = lowering.out.dtype
    if dtype not in ("float32", "float64") or any(isinstance(each, SizeExpr) for each in (start, end)):
        return NotImplemented
    if steps == 1:
        return lowering.compute(lowering.out, lambda index: ex.constant(start, dtype))
    start, end = (ex.constant(each, dtype).value for each in (start, end))
    across = ex.constant(end - start, dtype)
    last = add(steps, -1)
    if isinstance(last, int):
        step: Expr = ex.constant(across.value / last, dtype)
    else:
        step = ex.div(across, ex.cast(Index(last), dtype))
    number = lambda value: ex.constant(value, dtype)

    def body(index: IndexTuple) -> Expr:
        position = Index(index[0])
        near = _step_along(lowering, number(start), step, ex.cast(position, dtype))
        back = ex.cast(Index(add(last, mul(index[0], -1))), dtype)
        far = _step_along(lowering, number(end), Compute("neg", (step,), dtype), back)
        return ex.where(ex.compare("lt", position, as_index(floordiv(steps, 2))), near, far)

    return lowering.compute(lowering.out, body)


@rule("eye", "eye.m")
def _eye(lowering: Lowering, n: Size, *args: object, **options: object) -> TensorValue:
    return lowering.compute(lowering.out, lambda index: ex.compare("eq", as_index(index[0]), as_index(index[1])))


# Triangles ----------------------------------------


def _triangle(name: str, keep: str) -> None:
    @rule(name)
    def lower_triangle(lowering: Lowering, self: TensorValue, diagonal: int = 0) -> TensorValue:
        def body(index: IndexTuple) -> Expr:
            # Below and on the diagonal: column - row <= diagonal.
            position = as_index(add(index[-1], mul(index[-2], -1)))
            inside = Compute(keep, (position, as_index(diagonal)), "bool")
            value = self.load(index)
            return ex.where(inside, value, ex.constant(0, value.dtype))

        return lowering.compute(lowering.out, body)


_triangle("tril", "le")
_triangle("triu", "ge")
