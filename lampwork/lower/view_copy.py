"""Copying forms of the view operators (`permute_copy`): the view, then a copy nest. And views that always copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lampwork.ir.loops import Compute, Expr
from lampwork.ir.size import Size, add, mul
from lampwork.lower import expressions as ex
from lampwork.lower.expressions import as_index
from lampwork.lower.lower import Lowering
from lampwork.lower.reduction import reduced
from lampwork.lower.rules import RULES, Rule, full_name, rule
from lampwork.lower.values import IndexTuple, Result, TensorValue


def _copying(name: str, view: Rule) -> None:
    @rule(name)
    def lower_copy(lowering: Lowering, *args: object, **kwargs: object) -> Result:
        result = view(lowering, *args, **kwargs)
        if isinstance(result, tuple):
            return tuple(
                lowering.compute(lowering.out[k], value.load, str(k))
                if value is not None and lowering.needed(k)
                else None
                for k, value in enumerate(result)
            )
        return result if result is NotImplemented else lowering.compute(lowering.out, result.load)


for _name in (
    "alias", "detach", "expand", "permute", "t", "transpose.int", "unsqueeze", "squeeze", "squeeze.dim", "squeeze.dims",
    "slice.Tensor", "select.int", "view", "split.Tensor", "split_with_sizes", "unbind.int", "unfold", "diagonal",
    "as_strided", "view.dtype", "_reshape_alias",
):  # fmt: skip
    _base, _, _overload = _name.partition(".")
    _copying(f"{_base}_copy.{_overload}" if _overload else f"{_base}_copy", RULES[full_name(f"aten::{_name}")])


@rule("narrow_copy")
def _narrow_copy(lowering: Lowering, self: TensorValue, dim: int, start: int, length: int) -> TensorValue:
    dim %= len(self.shape)
    first = start + self.shape[dim] if start < 0 else start
    return lowering.compute(
        lowering.out, lambda index: self.load((*index[:dim], add(index[dim], first), *index[dim + 1 :]))
    )


@rule("rot90")
def _rot90(lowering: Lowering, self: TensorValue, k: int = 1, dims: Sequence[int] = (0, 1)) -> TensorValue:
    shape = self.shape
    first, second = (d % len(shape) for d in dims)
    turns = k % 4

    def body(index: IndexTuple) -> Expr:
        result = list(index)
        row, column = index[first], index[second]
        last_first, last_second = add(shape[first], -1), add(shape[second], -1)
        if turns == 1:
            result[first], result[second] = column, add(last_second, mul(row, -1))
        elif turns == 2:
            result[first], result[second] = add(last_first, mul(row, -1)), add(last_second, mul(column, -1))
        elif turns == 3:
            result[first], result[second] = add(last_first, mul(column, -1)), row
        return self.load(tuple(result))

    return lowering.compute(lowering.out, body)


def place_on_diagonal(row: Size, column: Size, offset: Any, length: Size) -> tuple[Expr, Size]:
    """Whether (row, column) is on a diagonal of `length` elements, and which one it is there. Its bounds are part of
    the condition: rows and columns may be picked by indices that nothing is known of."""
    position = row if offset >= 0 else column
    on_it = Compute("eq", (as_index(add(column, mul(row, -1))), as_index(offset)), "bool")
    mask = ex.both(on_it, ex.below(position, length))
    assert mask is not None
    return mask, position


@rule("diag_embed")
def _diag_embed(lowering: Lowering, self: TensorValue, offset: int = 0, dim1: int = -2, dim2: int = -1) -> TensorValue:
    rank = len(lowering.out.shape)
    dim1, dim2 = dim1 % rank, dim2 % rank
    rest = [d for d in range(rank) if d not in (dim1, dim2)]
    zero = ex.constant(0, self.dtype)

    def body(index: IndexTuple) -> Expr:
        mask, position = place_on_diagonal(index[dim1], index[dim2], offset, self.shape[-1])
        return ex.where(mask, self.load((*[index[d] for d in rest], position), mask), zero)

    return lowering.compute(lowering.out, body)


@rule("trace")
def _trace(lowering: Lowering, self: TensorValue) -> TensorValue:
    length = min(self.shape)  # type: ignore[type-var]
    if lowering.out.dtype in ("float16", "bfloat16", "bool"):
        return NotImplemented
    # In double precision, as eager's loop on a CPU.
    wide = lowering.numerics.accumulates_in_double and lowering.out.dtype == "float32"
    accumulator = "float64" if wide else lowering.out.dtype
    body = lambda index: ex.cast(self.load((index[0], index[0])), accumulator)
    return reduced(lowering, "sum", (length,), (0,), body, accumulator, lowering.out)
