"""Derivatives of views: the gradient among zeros, as a nest that loads under a mask: nothing is zeroed first.

    slice_backward(g, [n], 0, a, b, 1)      out[i] = g[i - a] if a <= i < b else 0

Such a nest is inlined into what adds it to other gradients.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from lampwork.ir.loops import Compute, Constant, Expr
from lampwork.ir.size import Size, add, floordiv, minimum, mod, mul
from lampwork.lower import expressions as ex
from lampwork.lower.expressions import as_index
from lampwork.lower.lower import Lowering
from lampwork.lower.rules import rule
from lampwork.lower.values import IndexTuple, TensorValue
from lampwork.lower.view import slice_bounds


def _among_zeros(grad_output: TensorValue, mask: Expr | None, where: tuple[Size, ...]) -> Expr:
    zero = ex.constant(0, grad_output.dtype)
    if type(mask) is Constant and not mask.value:
        return zero
    value = grad_output.load(where, mask)
    return value if mask is None else ex.where(mask, value, zero)


@rule("slice_backward")
def _slice(
    lowering: Lowering,
    grad_output: TensorValue,
    input_sizes: Sequence[Size],
    dim: int,
    start: Size,
    end: Size,
    step: int,
) -> TensorValue:
    shape = lowering.out.shape
    dim %= len(shape)
    start, end = slice_bounds(shape[dim], start, end)

    def body(index: IndexTuple) -> Expr:
        position = index[dim]
        mask = ex.both(
            ex.at_least(position, start) if start != 0 else None,
            ex.below(position, end) if end != shape[dim] else None,
        )
        inner = add(position, mul(start, -1))
        if step != 1:
            mask = ex.both(mask, Compute("eq", (as_index(mod(inner, step)), as_index(0)), "bool"))
            inner = floordiv(inner, step)
        return _among_zeros(grad_output, mask, (*index[:dim], inner, *index[dim + 1 :]))

    return lowering.compute(lowering.out, body)


@rule("select_backward")
def _select(
    lowering: Lowering, grad_output: TensorValue, input_sizes: Sequence[Size], dim: int, index: Size
) -> TensorValue:
    shape = lowering.out.shape
    dim %= len(shape)
    chosen = add(index, shape[dim]) if isinstance(index, int) and index < 0 else index

    def body(point: IndexTuple) -> Expr:
        mask = None if shape[dim] == 1 else Compute("eq", (as_index(point[dim]), as_index(chosen)), "bool")
        return _among_zeros(grad_output, mask, point[:dim] + point[dim + 1 :])

    return lowering.compute(lowering.out, body)


@rule("diagonal_backward")
def _diagonal(
    lowering: Lowering, grad_output: TensorValue, input_sizes: Sequence[Size], offset: int, dim1: int, dim2: int
) -> TensorValue:
    rank = len(lowering.out.shape)
    dim1, dim2 = dim1 % rank, dim2 % rank
    rest = [k for k in range(rank) if k not in (dim1, dim2)]

    def body(index: IndexTuple) -> Expr:
        row, column = index[dim1], index[dim2]
        mask = Compute("eq", (as_index(add(column, mul(row, -1))), as_index(offset)), "bool")
        position = row if offset >= 0 else add(row, offset)
        return _among_zeros(grad_output, mask, (*[index[k] for k in rest], position))

    return lowering.compute(lowering.out, body)


@rule("unfold_backward")
def _unfold(
    lowering: Lowering, grad_in: TensorValue, input_sizes: Sequence[Size], dim: int, size: int, step: int
) -> TensorValue:
    """The sum over the windows that an element lies in; windows without overlap hold it once or not at all."""
    shape = lowering.out.shape
    if not shape or not isinstance(size, int) or grad_in.dtype in ("float16", "bfloat16", "bool"):
        return NotImplemented
    dim %= len(shape)
    windows = grad_in.shape[dim]
    count = -(-size // step)  # windows that an element may lie in
    if count > 8:
        return NotImplemented

    def body(index: IndexTuple) -> Expr:
        position = index[dim]
        last = minimum(floordiv(position, step), add(windows, -1))
        # Eager adds windows that overlap to zeros: of -0 alone the sum is 0.
        terms: list[Expr] = [ex.constant(0, grad_in.dtype)] if count > 1 else []
        for back in range(count):
            window = add(last, -back)
            inner = add(position, mul(window, -step))
            mask = ex.both(ex.at_least(window, 0), ex.below(inner, size))
            terms.append(_among_zeros(grad_in, mask, (*index[:dim], window, *index[dim + 1 :], inner)))
        return functools.reduce(ex.add, terms)

    return lowering.compute(lowering.out, body)
