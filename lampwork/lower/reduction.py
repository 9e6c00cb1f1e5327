"""Reductions: sum, mean, extremes and their positions, any/all, product, variance, norms.

Floats accumulate in float32 (float64 for float64), integers in int64, as ATen. The accumulator's value goes to a helper
buffer of that type when the result's type differs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from lampwork.ir.dtype import FLOATING, ITEM_SIZE_BYTES, compute_dtype
from lampwork.ir.loops import Compute, Expr
from lampwork.ir.size import Size, bounds, product
from lampwork.lower import expressions as ex
from lampwork.lower.expressions import as_index
from lampwork.lower.lower import Lowering
from lampwork.lower.nests import dtype_name
from lampwork.lower.rules import rule
from lampwork.lower.values import IndexTuple, Number, Result, TensorMeta, TensorValue

Body = Callable[[IndexTuple], Expr]


def normalized_dims(dim: Any, rank: int) -> tuple[int, ...]:
    """`dim` argument (None or empty: all) as sorted non-negative dimensions."""
    if dim is None:
        return tuple(range(rank))
    if isinstance(dim, int):
        dim = (dim,)
    if not dim:
        return tuple(range(rank))
    return tuple(sorted(d % rank if rank else 0 for d in dim)) if rank else ()


def reduced(
    lowering: Lowering,
    op: str,
    shape: tuple[Size, ...],
    dims: Iterable[int],
    body: Body,
    accumulator: str,
    meta: TensorMeta,
    part: str = "",
) -> TensorValue:
    """Reduction with a result of `meta`: directly if the types agree, else through a helper and a conversion."""
    dims = tuple(dims)
    if meta.dtype == accumulator:
        return lowering.reduce(op, shape, dims, body, accumulator, part, meta)
    total = lowering.reduce(
        op,
        shape,
        dims,
        body,
        accumulator,
        f"{part}.{op}" if part else op,
        TensorMeta(accumulator, meta.shape, meta.strides),
    )
    return lowering.compute(meta, total.load, part)


def sum_of(
    lowering: Lowering, shape: tuple[Size, ...], dims: Iterable[int], body: Body, meta: TensorMeta, part: str = ""
) -> TensorValue:
    return reduced(lowering, "sum", shape, dims, body, compute_dtype(meta.dtype), meta, part)


def mean_of(
    lowering: Lowering, shape: tuple[Size, ...], dims: Iterable[int], body: Body, meta: TensorMeta, part: str = ""
) -> TensorValue:
    dims = tuple(dims)
    accumulator = compute_dtype(meta.dtype)
    name = f"{part}.sum" if part else "sum"
    total = lowering.reduce(
        "sum", shape, dims, body, accumulator, name, TensorMeta(accumulator, meta.shape, meta.strides)
    )
    count = count_of(shape, dims)
    return lowering.compute(
        meta, lambda index: ex.div(total.load(index), lowering.operand(count, (), (), accumulator)), part
    )


def count_of(shape: tuple[Size, ...], dims: Iterable[int]) -> Size:
    return product(shape[d] for d in set(dims))


def _as(self: TensorValue, dtype: str) -> Body:
    return lambda index: ex.cast(self.load(index), dtype)


def _converted(self: TensorValue, dtype: Any, accumulator: str) -> Body:
    """The elements, converted to the type that the result is asked for in first: float32 to float16 rounds before the
    sum."""
    if dtype is None:
        return _as(self, accumulator)
    wanted = dtype_name(dtype)
    return lambda index: ex.cast(ex.cast(self.load(index), wanted), accumulator)


@rule("sum.dim_IntList", "sum")
def _sum(lowering: Lowering, self: TensorValue, dim: tuple[int, ...] | None = None, keepdim: bool = False,
         dtype: torch.dtype | None = None) -> TensorValue:  # fmt: skip
    accumulator = compute_dtype(lowering.out.dtype)
    dims = normalized_dims(dim, len(self.shape))
    if accumulator == "bool":
        return NotImplemented
    return sum_of(lowering, self.shape, dims, _converted(self, dtype, accumulator), lowering.out)


@rule("nansum")
def _nansum(lowering: Lowering, self: TensorValue, dim: tuple[int, ...] | None = None, keepdim: bool = False,
            dtype: torch.dtype | None = None) -> TensorValue:  # fmt: skip
    accumulator = compute_dtype(lowering.out.dtype)
    if self.dtype not in FLOATING:
        return _sum(lowering, self, dim, keepdim, dtype)  # nothing in it is a NaN
    if accumulator not in FLOATING:
        return NotImplemented

    converted = _converted(self, dtype, accumulator)

    def body(index: IndexTuple) -> Expr:
        value = converted(index)
        return ex.where(ex.test("isnan", value), ex.like(0, value), value)

    return sum_of(lowering, self.shape, normalized_dims(dim, len(self.shape)), body, lowering.out)


@rule("mean.dim", "mean")
def _mean(lowering: Lowering, self: TensorValue, dim: tuple[int, ...] | None = None, keepdim: bool = False,
          dtype: torch.dtype | None = None) -> TensorValue:  # fmt: skip
    if lowering.out.dtype not in FLOATING:
        return NotImplemented
    accumulator = compute_dtype(lowering.out.dtype)
    # Kernels for a GPU round to a half type that is asked for before they add, as for sums; a CPU's add what there is.
    rounds = lowering.numerics.rounds_before_mean
    body = _converted(self, dtype, accumulator) if rounds else _as(self, accumulator)
    return mean_of(lowering, self.shape, normalized_dims(dim, len(self.shape)), body, lowering.out)


@rule("prod", "prod.dim_int")
def _prod(lowering: Lowering, self: TensorValue, dim: int | None = None, keepdim: bool = False,
          dtype: torch.dtype | None = None) -> TensorValue:  # fmt: skip
    accumulator = compute_dtype(lowering.out.dtype)
    if accumulator == "bool":
        return NotImplemented
    dims = normalized_dims(dim, len(self.shape))
    if accumulator == "float32" and lowering.numerics.accumulates_in_double:
        # In which order eager multiplies depends on the machine: a product with a factor 0 must not be infinite on the
        # way, nor one in range.
        accumulator = "float64"
    return reduced(lowering, "prod", self.shape, dims, _converted(self, dtype, accumulator), accumulator, lowering.out)


def _empty(self: TensorValue, dims: Iterable[int]) -> bool:
    return any(self.shape[d] == 0 for d in dims)


def _extreme(
    lowering: Lowering, op: str, self: TensorValue, dims: tuple[int, ...], meta: TensorMeta, part: str = ""
) -> TensorValue:
    """max/min: exact in the value's own type; half types compare as float32, bool folds as any/all. Of zeros of both
    signs `first_max` and `first_min` give the first, `max` and `min` the last, as eager's loops on a CPU do."""
    if self.dtype == "bool":
        op = "any" if op.endswith("max") else "all"
    return reduced(
        lowering, op, self.shape, dims, _as(self, compute_dtype(self.dtype)), compute_dtype(self.dtype), meta, part
    )


def _kept(lowering: Lowering, op: str) -> str:
    """The reduction `op` where no position goes with it. On a GPU eager's threads fold in no order: of zeros of both
    signs it gives either."""
    return op if lowering.numerics.folds_in_order else op.removeprefix("first_")


def _extremes(name: str, op: str) -> None:
    @rule(name)
    def lower_extremes(lowering: Lowering, self: TensorValue, dim: object = None, keepdim: bool = False) -> TensorValue:
        dims = normalized_dims(dim, len(self.shape))
        return (
            NotImplemented if _empty(self, dims) else _extreme(lowering, _kept(lowering, op), self, dims, lowering.out)
        )


for _name, _op in (("amax", "first_max"), ("amin", "first_min"), ("max", "max"), ("min", "min")):
    _extremes(_name, _op)


@rule("aminmax")
def _aminmax(
    lowering: Lowering, self: TensorValue, dim: int | None = None, keepdim: bool = False
) -> tuple[TensorValue | None, ...]:
    dims = normalized_dims(dim, len(self.shape))
    if _empty(self, dims):
        return NotImplemented
    first = "" if dim is None else "first_"
    return tuple(
        _extreme(lowering, _kept(lowering, first + op), self, dims, lowering.out[k], str(k))
        if lowering.needed(k)
        else None
        for k, op in enumerate(("min", "max"))
    )


def _extreme_with_position(op: str) -> Callable:
    def lower_extreme(lowering: Lowering, self: TensorValue, dim: int, keepdim: bool = False) -> Result:
        dims = normalized_dims(dim, len(self.shape))
        if _empty(self, dims):
            return NotImplemented
        values, positions = lowering.out
        first = _extreme(lowering, f"first_{op}", self, dims, values, "0") if lowering.needed(0) else None
        second = _position(lowering, op, self, dims, positions, "1") if lowering.needed(1) else None
        return first, second

    return lower_extreme


def _position(
    lowering: Lowering, op: str, self: TensorValue, dims: tuple[int, ...], meta: TensorMeta, part: str = ""
) -> TensorValue:
    dtype = compute_dtype(self.dtype)
    dtype = "uint8" if dtype == "bool" else dtype
    return lowering.reduce(f"arg{op}", self.shape, dims, _as(self, dtype), dtype, part, meta)


rule("max.dim")(_extreme_with_position("max"))
rule("min.dim")(_extreme_with_position("min"))


@rule("argmax")
def _argmax(lowering: Lowering, self: TensorValue, dim: int | None = None, keepdim: bool = False) -> TensorValue:
    dims = normalized_dims(dim, len(self.shape))
    return NotImplemented if _empty(self, dims) else _position(lowering, "max", self, dims, lowering.out)


@rule("argmin")
def _argmin(lowering: Lowering, self: TensorValue, dim: int | None = None, keepdim: bool = False) -> TensorValue:
    dims = normalized_dims(dim, len(self.shape))
    return NotImplemented if _empty(self, dims) else _position(lowering, "min", self, dims, lowering.out)


@rule("any", "any.dim", "any.dims")
def _any(
    lowering: Lowering, self: TensorValue, dim: int | tuple[int, ...] | None = None, keepdim: bool = False
) -> TensorValue:
    dims = normalized_dims(dim, len(self.shape))
    return reduced(lowering, "any", self.shape, dims, _as(self, "bool"), "bool", lowering.out)


@rule("all", "all.dim", "all.dims")
def _all(
    lowering: Lowering, self: TensorValue, dim: int | tuple[int, ...] | None = None, keepdim: bool = False
) -> TensorValue:
    dims = normalized_dims(dim, len(self.shape))
    return reduced(lowering, "all", self.shape, dims, _as(self, "bool"), "bool", lowering.out)


@rule("count_nonzero", "count_nonzero.dim_IntList")
def _count_nonzero(lowering: Lowering, self: TensorValue, dim: int | tuple[int, ...] | None = None) -> TensorValue:
    dims = normalized_dims(dim, len(self.shape))
    body = lambda index: ex.cast(ex.cast(self.load(index), "bool"), "int64")
    return lowering.reduce("sum", self.shape, dims, body, "int64", "", lowering.out)


# Variance ----------------------------------------


def two_pass_moments(
    lowering: Lowering,
    self: TensorValue,
    dims: tuple[int, ...],
    correction: Any,
    accumulator: str = "",
    refined: bool = False,
    running: bool = True,
) -> tuple[TensorValue | None, TensorValue, TensorValue]:
    """`rest`, mean and variance over `dims`, as helpers of the dimensions that stay, in two passes. `rest` is what the
    mean, rounded, leaves over of itself; None: that is not kept.

    The second pass also sums the distances themselves, which tell what rounding took from the mean (Chan, Golub,
    LeVeque 1983): of equal elements it is that element, and their variance zero, as of eager's running mean.

        mean = m + r        variance = (sum((x - m)**2) - n * r * r) / (n - correction)        r = sum(x - m) / n

    They are computed in the type `accumulator`, by default the compute type of `self`. The divisor is
    max(0, n - correction), as in ATen: no elements to spare give NaN or infinity. `refined`: a pass in between adds to
    the mean what rounding took from it, so that of equal elements it is that element, and their variance zero.
    `running`: eager's kernel computes a running mean, which is never out of range, so the sum must not be either.
    """
    accumulator = accumulator or compute_dtype(self.dtype)
    shape = self.shape
    chosen = set(dims)
    body = _as(self, accumulator)
    count = count_of(shape, dims)
    scale = _scale_of_sums(lowering, count, self.dtype, accumulator) if running else 1.0
    element = (lambda i: ex.mul(body(i), ex.constant(scale, accumulator))) if scale != 1 else body
    total = lowering.reduce("sum", shape, dims, element, accumulator, "sum")

    def average(index: IndexTuple) -> Expr:
        if isinstance(count, int):
            return ex.div(total.load(index), ex.constant(count * scale, accumulator))
        size = lowering.operand(count, (), (), accumulator)
        return ex.div(total.load(index), ex.mul(size, ex.constant(scale, accumulator)) if scale != 1 else size)

    mean = lowering.compute_fresh(total.shape, accumulator, average, "mean")
    if refined:
        mean = _refined(lowering, mean, shape, dims, body, count)
    near = mean

    def distance(index: IndexTuple) -> Expr:
        return ex.sub(body(index), near.load(tuple([index[k] for k in range(len(shape)) if k not in chosen])))

    def squared(index: IndexTuple) -> Expr:
        centered = distance(index)
        return ex.mul(centered, centered)

    squares = lowering.reduce("sum", shape, dims, squared, accumulator, "squares")
    mean, rest, squares_at = _without_rounding(lowering, mean, squares, shape, dims, distance, count)
    if isinstance(count, int):
        divisor: Any = max(0.0, count - correction) if count else 0.0
    else:
        divisor = None

    def divided(index: IndexTuple) -> Expr:
        if divisor is not None:
            return ex.div(squares_at(index), ex.constant(divisor, accumulator))
        size = lowering.operand(count, (), (), accumulator)
        free = ex.sub(size, ex.constant(correction, accumulator))
        if correction < 0:  # of no elements there is none, whatever is added to their number
            free = ex.where(ex.compare("gt", size, ex.like(0, size)), free, ex.like(0, size))
        return ex.div(squares_at(index), ex.maximum(free, ex.constant(0, accumulator)))

    return rest, mean, lowering.compute_fresh(squares.shape, accumulator, divided, "variance")


#: What sums of rows of any length are scaled by.
_SCALE_OF_ANY = 2.0**-10


def _scale_of_sums(lowering: Lowering, count: Size, dtype: str, accumulator: str) -> float:
    """The power of two that elements of a row are multiplied by, so that their sum is in the range of the type. Kernels
    multiply and add in one instruction (`codegen/llvm/reduction.py`)."""
    has_room = dtype == "float16" or ITEM_SIZE_BYTES[dtype] < ITEM_SIZE_BYTES[accumulator] == 8
    if not lowering.numerics.sums_keep_range or has_room:
        return 1.0
    return 2.0 ** -(count - 1).bit_length() if isinstance(count, int) else _SCALE_OF_ANY


def _without_rounding(
    lowering: Lowering,
    near: TensorValue,
    squares: TensorValue,
    shape: tuple[Size, ...],
    dims: tuple[int, ...],
    distance: Callable[[IndexTuple], Expr],
    count: object,
) -> tuple[TensorValue, TensorValue | None, Callable[[IndexTuple], Expr]]:
    """The mean, rounded, what it leaves over of itself, if that is kept, and the sum of squared distances from it, of
    `near` and of the squared distances from that. What is near to zero, for its row, is as exact as it gets."""
    dtype = near.dtype
    left = lowering.reduce("sum", shape, dims, distance, dtype, "left")

    def off(index: IndexTuple) -> Expr:
        size, mean = lowering.operand(count, (), (), dtype), near.load(index)
        is_far = ex.compare("lt", ex.div(squares.load(index), size), ex.mul(mean, mean))
        value = ex.div(left.load(index), size)
        finite = ex.compare("lt", ex.unary("abs", value), ex.constant(math.inf, dtype))
        return ex.where(Compute("and", (is_far, finite), "bool"), value, ex.constant(0, dtype))

    mean = lowering.compute_fresh(near.shape, dtype, lambda i: ex.add(near.load(i), off(i)), "exact mean")

    def less(index: IndexTuple) -> Expr:
        total = squares.load(index)
        value = ex.maximum(ex.sub(total, ex.mul(left.load(index), off(index))), ex.constant(0, dtype))
        return ex.where(ex.compare("eq", total, ex.constant(math.inf, dtype)), total, value)

    rest = None
    if lowering.numerics.keeps_rest_of_means:
        left_over = lambda i: ex.sub(off(i), ex.sub(mean.load(i), near.load(i)))
        rest = lowering.compute_fresh(near.shape, dtype, left_over, "rest")
    return mean, rest, less


def _refined(
    lowering: Lowering, near: TensorValue, shape: tuple[Size, ...], dims: tuple[int, ...], body: Callable, count: object
) -> TensorValue:
    """The mean `near` and the mean distance from it."""
    chosen, dtype = set(dims), near.dtype

    def distance(index: IndexTuple) -> Expr:
        return ex.sub(body(index), near.load(tuple([index[k] for k in range(len(shape)) if k not in chosen])))

    left = lowering.reduce("sum", shape, dims, distance, dtype, "left")

    def added(index: IndexTuple) -> Expr:
        rest = ex.div(left.load(index), lowering.operand(count, (), (), dtype))
        finite = ex.compare("lt", ex.unary("abs", rest), ex.constant(math.inf, dtype))
        return ex.add(near.load(index), ex.where(finite, rest, ex.constant(0, dtype)))

    return lowering.compute_fresh(near.shape, dtype, added, "refined mean")


def moments(
    lowering: Lowering, self: TensorValue, dims: tuple[int, ...], sum_dtype: str = "float64", running: bool = True
) -> tuple[TensorValue | None, TensorValue, TensorValue]:
    """`rest`, mean and variance over `dims`: what the mean, rounded, leaves over of itself (None: that is not known).

    float32 on a CPU: numbers far from zero differ by less than their mean is off by as one number of float32. So it is
    summed in double precision, and kept as m, rounded, and the rest r (Chan, Golub, LeVeque 1983):

        mean = m + r        variance = sum((x - m)**2) / n - r * r

    `sum_dtype`: the type that eager sums in, whose range sums have, unless its mean is a `running` one.
    """
    accumulator = compute_dtype(self.dtype)
    if not lowering.numerics.accumulates_in_double or accumulator != "float32":
        return two_pass_moments(lowering, self, dims, 0, running=running)
    wide = "float64"
    shape, chosen = self.shape, set(dims)
    body = _as(self, accumulator)
    count = lowering.operand(count_of(shape, dims), (), (), wide)
    total = lowering.reduce("sum", shape, dims, _as(self, wide), wide, "sum")
    within = lambda i: ex.cast(ex.cast(total.load(i), sum_dtype), wide)
    exact = lowering.compute_fresh(total.shape, wide, lambda i: ex.div(within(i), count), "exact")
    near = lowering.compute_fresh(total.shape, accumulator, lambda i: ex.cast(exact.load(i), accumulator), "near")

    def squared_distance(index: IndexTuple) -> Expr:
        value = ex.sub(body(index), near.load(tuple([index[k] for k in range(len(shape)) if k not in chosen])))
        return ex.mul(value, value)

    squares = lowering.reduce("sum", shape, dims, squared_distance, accumulator, "squares")
    rest = lowering.compute_fresh(
        total.shape,
        accumulator,
        lambda i: ex.cast(ex.sub(exact.load(i), ex.cast(near.load(i), wide)), accumulator),
        "rest",
    )

    def spread(index: IndexTuple) -> Expr:
        whole = ex.div(squares.load(index), ex.cast(count, accumulator))
        value = ex.sub(whole, ex.mul(rest.load(index), rest.load(index)))
        value = ex.maximum(value, ex.constant(0, accumulator))
        return ex.where(ex.compare("eq", whole, ex.like(math.inf, whole)), whole, value)

    return rest, near, lowering.compute_fresh(total.shape, accumulator, spread, "variance")


def _spread(lowering: Lowering, self: TensorValue, dim: object, correction: Any, root: bool, with_mean: bool) -> Any:
    if self.dtype not in FLOATING:
        return NotImplemented
    dims = normalized_dims(dim, len(self.shape))
    # In double precision on a CPU, as eager's kernel there (`std_var_kernel`): the variance of numbers far from zero is
    # less than what rounding their mean to their own type does to it, and squares would leave the range of the type.
    accumulator = "float64" if lowering.numerics.accumulates_in_double else ""
    correction = 1 if correction is None else correction
    # Sums of a narrower type are exact there, or nearly.
    _, mean, squared = two_pass_moments(lowering, self, dims, correction, accumulator, self.dtype == accumulator)
    count = count_of(self.shape, dims)
    whole = all(each == 1 for place, each in enumerate(self.shape) if place not in dims)
    if lowering.numerics.running_means and self.dtype == "float32" and whole and not with_mean:
        squared = _overflowing_as_the_sum(lowering, mean, squared, count)
    # Eager's running mean is NaN from an infinity on, as the variance is, but where that comes last. Of too few
    # elements the variance alone is NaN.
    few = math.floor(max(correction, 1))
    ahead = _ahead_of_the_last(lowering, self, dims) if lowering.numerics.running_means and with_mean else None

    def mean_at(index: IndexTuple) -> Expr:
        value, spread = mean.load(index), squared.load(index)
        if ahead is not None:
            rest = ahead(index)
            return ex.where(ex.compare("eq", rest, ex.like(0, rest)), value, ex.like(math.nan, value))
        if bounds(count)[1] <= few:
            return value
        hidden = ex.test("isnan", spread)
        if bounds(count)[0] <= few:
            hidden = Compute("and", (hidden, ex.compare("gt", as_index(count), ex.constant(few, "int64"))), "bool")
        return ex.where(hidden, spread, value)

    function = (lambda e: ex.unary("sqrt", e)) if root else (lambda e: e)
    if not with_mean:
        return finish_keepdim(lowering, squared, lowering.out, dims, function)
    replaced = lowering.compute_fresh(mean.shape, mean.dtype, mean_at, "shown mean")
    return (
        finish_keepdim(lowering, squared, lowering.out[0], dims, function, "0") if lowering.needed(0) else None,
        finish_keepdim(lowering, replaced, lowering.out[1], dims, lambda e: e, "1") if lowering.needed(1) else None,
    )


#: Rows of at most so many elements are unrolled; longer ones take a reduction.
_SHORT_ROW = 8


def _ahead_of_the_last(lowering: Lowering, self: TensorValue, dims: tuple[int, ...]) -> Body | None:
    """0, or NaN where an element of a row over `dims` other than the last is not finite. None for rows of one
    element."""
    dtype = compute_dtype(self.dtype)
    sizes = [size for size in (self.shape[dim] for dim in dims) if isinstance(size, int)]
    if len(sizes) < len(dims) or math.prod(sizes) > _SHORT_ROW:

        def unless_last(index: IndexTuple) -> Expr:
            other = ex.mul(ex.cast(self.load(index), dtype), ex.constant(0, dtype))
            found: Expr = ex.constant(0, dtype)
            for dim in dims:
                is_end = ex.compare("eq", as_index(index[dim]), as_index(self.shape[dim] - 1))
                found = ex.where(is_end, found, other)
            return found

        return lowering.reduce("sum", self.shape, dims, unless_last, dtype, "ahead").load
    if math.prod(sizes) < 2:
        return None
    places = list(itertools.product(*(range(size) for size in sizes)))[:-1]

    def ahead(index: IndexTuple) -> Expr:
        nothing = ex.constant(0, dtype)
        total: Expr = nothing
        for place in places:
            kept, chosen = iter(index), dict(zip(dims, place))
            point = tuple([chosen[k] if k in chosen else next(kept) for k in range(len(self.shape))])
            total = ex.add(total, ex.mul(ex.cast(self.load(point), dtype), nothing))
        return total

    return ahead


def _overflowing_as_the_sum(lowering: Lowering, mean: TensorValue, squared: TensorValue, count: Size) -> TensorValue:
    """The variance of all elements of float32. Eager's kernel for that (`std_var_all_cpu`) takes distances from a mean
    that is computed in float32: where the sum overflows, so does the variance."""

    def value(index: IndexTuple) -> Expr:
        total = ex.mul(mean.load(index), lowering.operand(count, (), (), mean.dtype))
        narrow = ex.cast(ex.cast(total, "float32"), squared.dtype)
        finite = ex.compare("lt", ex.unary("abs", narrow), ex.like(math.inf, narrow))
        return ex.add(squared.load(index), ex.where(finite, ex.like(0, narrow), ex.mul(narrow, narrow)))

    return lowering.compute_fresh(squared.shape, squared.dtype, value, "overflowing")


def finish_keepdim(
    lowering: Lowering,
    total: TensorValue,
    meta: TensorMeta,
    dims: tuple[int, ...],
    function: Callable[[Expr], Expr],
    part: str = "",
) -> TensorValue:
    """`function(total)`, where `total` has the dimensions that stay and `meta` those, or all (keepdim)."""
    if len(meta.shape) == len(total.shape):
        return lowering.compute(meta, lambda index: function(total.load(index)), part)
    chosen = set(dims)
    return lowering.compute(
        meta, lambda index: function(total.load(tuple([s for k, s in enumerate(index) if k not in chosen]))), part
    )


@rule("var.correction")
def _var(lowering: Lowering, self: TensorValue, dim: tuple[int, ...] | None = None, correction: Number | None = None,
         keepdim: bool = False) -> TensorValue:  # fmt: skip
    return _spread(lowering, self, dim, correction, False, False)


@rule("std.correction")
def _std(lowering: Lowering, self: TensorValue, dim: tuple[int, ...] | None = None, correction: Number | None = None,
         keepdim: bool = False) -> TensorValue:  # fmt: skip
    return _spread(lowering, self, dim, correction, True, False)


@rule("var_mean.correction")
def _var_mean(lowering: Lowering, self: TensorValue, dim: tuple[int, ...] | None = None,
              correction: Number | None = None, keepdim: bool = False) -> TensorValue:  # fmt: skip
    return _spread(lowering, self, dim, correction, False, True)


@rule("std_mean.correction")
def _std_mean(lowering: Lowering, self: TensorValue, dim: tuple[int, ...] | None = None,
              correction: Number | None = None, keepdim: bool = False) -> TensorValue:  # fmt: skip
    return _spread(lowering, self, dim, correction, True, True)


# Norms ----------------------------------------


@rule("linalg_vector_norm")
def _vector_norm(lowering: Lowering, self: TensorValue, ord: Number = 2, dim: tuple[int, ...] | None = None,
                 keepdim: bool = False, dtype: torch.dtype | None = None) -> TensorValue:  # fmt: skip
    narrows = dtype is not None and ITEM_SIZE_BYTES[lowering.out.dtype] < ITEM_SIZE_BYTES[self.dtype]
    if self.dtype not in FLOATING or narrows:  # which eager refuses
        return NotImplemented
    dims = normalized_dims(dim, len(self.shape))
    # Of one number eager takes no powers, unless that is a tensor without dimensions, one of which is asked for.
    of_powers = not self.shape and dim not in (None, (), [])
    return norm_of(lowering, self.shape, dims, _as(self, compute_dtype(lowering.out.dtype)), ord, of_powers)


def norm_of(
    lowering: Lowering, shape: tuple[Size, ...], dims: tuple[int, ...], value: Body, ord: Any, of_powers: bool = False
) -> TensorValue:
    """The norm of order `ord` of `value` (in the accumulator type) over `dims`, as the node's result. `of_powers`: of
    one number, too."""
    meta = lowering.out
    if meta.dtype not in FLOATING or (0 in shape and not 0 <= ord < math.inf):
        return NotImplemented
    accumulator = compute_dtype(meta.dtype)
    magnitude = lambda index: ex.unary("abs", value(index))
    if ord in (math.inf, -math.inf):
        return reduced(lowering, "max" if ord > 0 else "min", shape, dims, magnitude, accumulator, meta)
    dims = tuple(dims)
    count = count_of(shape, dims)
    if ord == 1 or ord != 0 and not of_powers and count == 1:
        return sum_of(lowering, shape, dims, magnitude, meta)
    if ord == 0:
        body = lambda index: ex.cast(ex.cast(value(index), "bool"), accumulator)
        return sum_of(lowering, shape, dims, body, meta)

    def power(index: IndexTuple) -> Expr:
        if ord != 2:
            return power_of(magnitude(index), ord)
        loaded = value(index)
        return ex.mul(loaded, loaded)

    root = lambda e: ex.unary("sqrt", e) if ord == 2 else power_of(e, 1 / ord)
    part = "squares" if ord == 2 else "powers"
    if isinstance(count, int) or of_powers or not bounds(count)[0] <= 1 <= bounds(count)[1]:
        total = lowering.reduce("sum", shape, dims, power, accumulator, part)
        return finish_keepdim(lowering, total, meta, dims, root)
    # Rows may be one number long, whose square may have no room in the type.
    of_one = ex.compare("eq", as_index(count), ex.constant(1, "int64"))
    total = lowering.reduce(
        "sum", shape, dims, lambda index: ex.where(of_one, magnitude(index), power(index)), accumulator, part
    )
    return finish_keepdim(lowering, total, meta, dims, lambda e: ex.where(of_one, e, root(e)))


def power_of(value: Expr, exponent: float) -> Expr:
    return ex.binary("pow", value, ex.like(exponent, value))


@rule("dist")
def _dist(lowering: Lowering, self: TensorValue, other: TensorValue, p: Number = 2) -> TensorValue:
    if self.dtype not in FLOATING or self.dtype != other.dtype:
        return NotImplemented
    shape = broadcast_shape(self.shape, other.shape)
    accumulator = compute_dtype(lowering.out.dtype)

    def value(index: IndexTuple) -> Expr:
        return ex.sub(
            lowering.operand(self, index, shape, accumulator), lowering.operand(other, index, shape, accumulator)
        )

    return norm_of(lowering, shape, tuple(range(len(shape))), value, p)


@rule("dot", "vdot")
def _dot(lowering: Lowering, self: TensorValue, other: TensorValue) -> TensorValue:
    accumulator = compute_dtype(lowering.out.dtype)
    if accumulator == "bool":
        return NotImplemented
    body = lambda index: ex.mul(ex.cast(self.load(index), accumulator), ex.cast(other.load(index), accumulator))
    return sum_of(lowering, self.shape, (0,), body, lowering.out)


def broadcast_shape(left: tuple[Size, ...], right: tuple[Size, ...]) -> tuple[Size, ...]:
    rank = max(len(left), len(right))
    left, right = (1,) * (rank - len(left)) + left, (1,) * (rank - len(right)) + right
    return tuple(second if first == 1 else first for first, second in zip(left, right))


@rule("norm.ScalarOpt_dim", "norm.Scalar", "norm.ScalarOpt_dim_dtype")
def _norm(lowering: Lowering, self: TensorValue, p: Number | None = 2, dim: tuple[int, ...] | None = None,
          keepdim: bool = False, dtype: torch.dtype | None = None) -> TensorValue:  # fmt: skip
    return _vector_norm(lowering, self, 2 if p is None else p, dim, keepdim)


@rule("logsumexp")
def _logsumexp(lowering: Lowering, self: TensorValue, dim: tuple[int, ...], keepdim: bool = False) -> TensorValue:
    meta = lowering.out
    if meta.dtype not in FLOATING:
        return NotImplemented
    dims = normalized_dims(dim, len(self.shape))
    if _empty(self, dims):
        return lowering.compute(meta, lambda index: ex.constant(-math.inf, meta.dtype))
    chosen = set(dims)
    accumulator = compute_dtype(meta.dtype)
    value = _as(self, accumulator)
    raw = lowering.reduce("max", self.shape, dims, value, accumulator, "max")

    def finite(index: IndexTuple) -> Expr:
        """An infinite maximum is not subtracted (ATen's logsumexp does the same)."""
        largest = raw.load(index)
        infinite = ex.compare("eq", ex.unary("abs", largest), ex.like(math.inf, largest))
        return ex.where(infinite, ex.like(0, largest), largest)

    largest = lowering.compute_fresh(raw.shape, accumulator, finite, "shift")

    def exponential(index: IndexTuple) -> Expr:
        kept = tuple([s for k, s in enumerate(index) if k not in chosen])
        return ex.unary("exp", ex.sub(value(index), largest.load(kept)))

    total = lowering.reduce("sum", self.shape, dims, exponential, accumulator, "sum")
    if len(meta.shape) == len(total.shape):
        return lowering.compute(meta, lambda i: ex.add(ex.unary("log", total.load(i)), largest.load(i)))

    def body(index: IndexTuple) -> Expr:
        kept = tuple([s for k, s in enumerate(index) if k not in chosen])
        return ex.add(ex.unary("log", total.load(kept)), largest.load(kept))

    return lowering.compute(meta, body)
