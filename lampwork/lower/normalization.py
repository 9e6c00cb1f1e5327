"""Softmax and the normalisations: statistics by reductions, then one pointwise nest.

_softmax(x, 1)         m[i] = max_r x[i, r];  e[i, j] = exp(x[i, j] - m[i]);  s[i] = sum_r e[i, r];  out = e / s
native_layer_norm      mean, then sum of squares around it (two passes), then (x - mean) * rstd * w + b
"""

from __future__ import annotations

import math
from typing import Any

import torch

from lampwork.ir.dtype import FLOATING, ITEM_SIZE_BYTES, compute_dtype
from lampwork.ir.loops import Compute, Expr
from lampwork.ir.program import TensorRef
from lampwork.ir.size import Size, add, bounds, floordiv, mod, mul, product
from lampwork.lower import expressions as ex
from lampwork.lower.expressions import as_index
from lampwork.lower.lower import Lowering
from lampwork.lower.reduction import count_of, moments, two_pass_moments
from lampwork.lower.rules import rule
from lampwork.lower.values import IndexTuple, TensorMeta, TensorValue, contiguous_strides
from lampwork.lower.view import reshape_map

# Softmax ----------------------------------------


def _shifted(lowering: Lowering, self: TensorValue, dim: int) -> Any:
    """The row maximum, `index -> x - max` and `index -> index without dim`, in the accumulator type."""
    accumulator = compute_dtype(self.dtype)
    value = lambda index: ex.cast(self.load(index), accumulator)
    largest = lowering.reduce("max", self.shape, (dim,), value, accumulator, "max")
    kept = lambda index: index[:dim] + index[dim + 1 :]
    return largest, lambda index: ex.sub(value(index), largest.load(kept(index))), kept


def _prepare(lowering: Lowering, self: TensorValue, dim: int) -> int | None:
    """The normalised dimension, or None when there is nothing to normalise over."""
    if self.dtype not in FLOATING or not self.shape or 0 in self.shape:
        return None
    return dim % len(self.shape)


def _of_one_number(lowering: Lowering, self: TensorValue, log: bool) -> TensorValue:
    """Softmax of a tensor without dimensions: 1, or 0 as a logarithm; infinities and NaN give NaN."""
    accumulator = compute_dtype(self.dtype)

    def body(index: IndexTuple) -> Expr:
        value = ex.cast(self.load(index), accumulator)
        nothing = ex.sub(value, value)
        return nothing if log else ex.unary("exp", nothing)

    return lowering.compute(lowering.out, body)


@rule("_softmax")
def _softmax(lowering: Lowering, self: TensorValue, dim: int, half_to_float: bool, safe: bool = False) -> TensorValue:
    if not self.shape and self.dtype in FLOATING and not safe:
        return _of_one_number(lowering, self, False)
    chosen = _prepare(lowering, self, dim)
    if chosen is None:
        return NotImplemented
    accumulator = compute_dtype(self.dtype)
    largest, shifted, kept = _shifted(lowering, self, chosen)
    meta = TensorMeta(accumulator, self.shape, lowering.out.strides)
    exponential = lowering.compute(meta, lambda index: ex.unary("exp", shifted(index)), "exp")
    total = lowering.reduce("sum", self.shape, (chosen,), exponential.load, accumulator, "sum")

    def quotient(index: IndexTuple) -> Expr:
        value = ex.div(exponential.load(index), total.load(kept(index)))
        if not safe:
            return value
        # A row of nothing but -inf gives zeros instead of NaN.
        row = largest.load(kept(index))
        return ex.where(ex.compare("eq", row, ex.like(-math.inf, row)), ex.like(0, value), value)

    return lowering.compute(lowering.out, quotient)


@rule("_safe_softmax")
def _safe_softmax(lowering: Lowering, self: TensorValue, dim: int, dtype: torch.dtype | None = None) -> TensorValue:
    if dtype is not None and lowering.out.dtype != self.dtype:
        return NotImplemented
    return _softmax(lowering, self, dim, False, safe=True)


@rule("_log_softmax")
def _log_softmax(lowering: Lowering, self: TensorValue, dim: int, half_to_float: bool) -> TensorValue:
    if not self.shape and self.dtype in FLOATING:
        return _of_one_number(lowering, self, True)
    chosen = _prepare(lowering, self, dim)
    if chosen is None:
        return NotImplemented
    accumulator = compute_dtype(self.dtype)
    _, shifted, kept = _shifted(lowering, self, chosen)
    total = lowering.reduce(
        "sum", self.shape, (chosen,), lambda index: ex.unary("exp", shifted(index)), accumulator, "sum"
    )
    log = lowering.compute_fresh(total.shape, accumulator, lambda index: ex.unary("log", total.load(index)), "log")
    return lowering.compute(lowering.out, lambda index: ex.sub(shifted(index), log.load(kept(index))))


# Layer, RMS and group norm ----------------------------------------


def _reciprocal_root(lowering: Lowering, variance: TensorValue, eps: float) -> TensorValue:
    """1 / sqrt(variance + eps)"""
    dtype = variance.dtype
    return lowering.compute_fresh(
        variance.shape,
        dtype,
        lambda i: ex.unary("rsqrt", ex.add(variance.load(i), ex.constant(eps, dtype))),
        "rstd",
    )


def _statistics_output(lowering: Lowering, value: TensorValue, position: int) -> TensorValue | None:
    """Statistic `value` as result `position`: another shape of as many elements (trailing 1s), another dtype."""
    meta = lowering.out[position]
    if meta is None or not lowering.needed(position):
        return None
    rank = len(value.shape)
    return lowering.compute(meta, lambda index: value.load(index[:rank]), str(position))


def _affine(normalized: Expr, weight: Expr | None, bias: Expr | None) -> Expr:
    if weight is not None:
        normalized = ex.mul(normalized, weight)
    return ex.add(normalized, bias) if bias is not None else normalized


def _scaled_from(element: Expr, mean: Expr, rest: Expr | None, scale: Expr, shift: Expr | None) -> Expr:
    """(x - mean) * scale + shift: of numbers far from zero, `x * scale` and the constant term `shift - mean * scale`
    are rounded to more than their difference. What the mean leaves over goes with the shift, once a row; nothing
    is left where the scale is infinite."""
    scaled = ex.mul(ex.sub(ex.cast(element, mean.dtype), mean), scale)
    if rest is not None:
        shift = _less(shift, rest, scale)
    return ex.add(scaled, shift) if shift is not None else scaled


def _less(shift: Expr | None, rest: Expr, scale: Expr) -> Expr:
    """shift - rest * scale, where that product is finite (an infinite one of another sign than the scaled difference
    would make that NaN); without a shift, minus the product."""
    left = ex.mul(rest, scale)
    left = ex.where(_is_finite(left), left, ex.like(0, left))
    return ex.sub(shift, left) if shift is not None else ex.unary("neg", left)


def _as_rows_overflow(
    lowering: Lowering, input: TensorValue, mean: TensorValue, squared: TensorValue, count: Size
) -> TensorValue:
    """The variance; NaN for a row shorter than a vector of eager's whose mean, or running mean, has no square: there
    eager's kernel on a CPU (`RowwiseMoments`) weighs the square of what no lane has seen by 0. So it does in rows of
    whole vectors with the square of what the first lane has seen. That is followed in rows of one or two. `input`: in
    dimensions of rows, then of a row."""
    lanes = _VECTOR_BYTES // ITEM_SIZE_BYTES[input.dtype]
    if not lowering.numerics.running_means:
        return squared
    of_first_lane = input.dtype == mean.dtype and count in (lanes, 2 * lanes)
    if bounds(count)[0] >= lanes and not of_first_lane:
        return squared
    row = input.shape[len(mean.shape) :]
    starts = range(0)
    if isinstance(count, int) and (of_first_lane or count <= _LONGEST_FOLLOWED):
        starts = range(0, count, lanes if of_first_lane else 1)
    places = [reshape_map(row, (count,))((start,)) for start in starts]

    def value(index: IndexTuple) -> Expr:
        middle = mean.load(index)
        if places:
            load = lambda place: ex.cast(input.load((*index, *place)), mean.dtype)
            middle = load(places[0])
            for number, place in enumerate(places[1:], 2):
                middle = ex.add(middle, ex.mul(ex.sub(load(place), middle), ex.like(1 / number, middle)))
        unseen = ex.mul(ex.mul(middle, middle), ex.like(0, middle))
        if not isinstance(count, int):
            is_short = ex.compare("lt", as_index(count), ex.constant(lanes, "int64"))
            unseen = ex.where(is_short, unseen, ex.like(0, middle))
        return ex.add(squared.load(index), unseen)

    return lowering.compute_fresh(squared.shape, squared.dtype, value, "spread")


#: A vector of that kernel of eager's. It is not compiled for wider ones, whatever the machine has.
_VECTOR_BYTES = 32
#: Elements of a row whose running mean is written out. Each step names the one before it twice: a row of 15 elements
#: took 0.6 s to compile.
_LONGEST_FOLLOWED = 7


@rule("native_layer_norm")
def _native_layer_norm(
    lowering: Lowering,
    input: TensorValue,
    normalized_shape: tuple[Size, ...],
    weight: TensorValue | None,
    bias: TensorValue | None,
    eps: float,
) -> tuple[TensorValue | None, ...]:
    rank, inner = len(input.shape), len(normalized_shape)
    outer = rank - inner
    if input.dtype not in FLOATING or 0 in input.shape:
        return NotImplemented
    dims = tuple(range(outer, rank))
    rest, mean, squared = two_pass_moments(lowering, input, dims, 0)
    count = count_of(input.shape, dims)
    squared = _as_rows_overflow(lowering, input, mean, squared, count)
    rstd = _reciprocal_root(lowering, squared, eps)
    accumulator = mean.dtype
    vector = lowering.numerics.layer_norm_vector
    left_over = mod(count, vector) if vector and accumulator == "float32" else 1

    def constant_term(value: Expr) -> Expr:
        """What eager's kernel adds where there is no bias, so that no result is -0; that for whole vectors on a GPU
        does not."""
        zero = ex.like(0, value)
        if isinstance(left_over, int):
            return zero
        return ex.where(ex.compare("eq", as_index(left_over), as_index(0)), ex.unary("neg", zero), zero)

    def body(index: IndexTuple) -> Expr:
        row, column = index[:outer], index[outer:]
        centered = ex.sub(ex.cast(input.load(index), accumulator), mean.load(row))
        if rest is not None:
            centered = ex.sub(centered, rest.load(row))
        value = _affine(
            ex.mul(centered, rstd.load(row)),
            ex.cast(weight.load(column), accumulator) if weight is not None else None,
            ex.cast(bias.load(column), accumulator) if bias is not None else None,
        )
        return value if bias is not None or left_over == 0 else ex.add(value, constant_term(value))

    out = lowering.compute(lowering.out[0], body, "0") if lowering.needed(0) else None
    return out, _statistics_output(lowering, mean, 1), _statistics_output(lowering, rstd, 2)


@rule("_fused_rms_norm")
def _fused_rms_norm(lowering: Lowering, input: TensorValue, normalized_shape: tuple[int, ...],
                    weight: TensorValue | None, eps: float | None) -> tuple[TensorValue | None, ...]:  # fmt: skip
    rank, inner = len(input.shape), len(normalized_shape)
    outer = rank - inner
    if input.dtype not in FLOATING or 0 in input.shape:
        return NotImplemented
    accumulator = compute_dtype(input.dtype)
    if eps is None:
        eps = {"float64": 2.220446049250313e-16}.get(accumulator, 1.1920928955078125e-07)
    value = lambda index: ex.cast(input.load(index), accumulator)

    def square(index: IndexTuple) -> Expr:
        loaded = value(index)
        return ex.mul(loaded, loaded)

    dims = tuple(range(outer, rank))
    total = lowering.reduce("sum", input.shape, dims, square, accumulator, "squares")
    count = lowering.operand(product(normalized_shape), (), (), accumulator)
    squared = lowering.compute_fresh(total.shape, accumulator, lambda i: ex.div(total.load(i), count), "mean")
    rstd = _reciprocal_root(lowering, squared, eps)

    def body(index: IndexTuple) -> Expr:
        scale = ex.cast(weight.load(index[outer:]), accumulator) if weight is not None else None
        return _affine(ex.mul(value(index), rstd.load(index[:outer])), scale, None)

    out = lowering.compute(lowering.out[0], body, "0") if lowering.needed(0) else None
    return out, _statistics_output(lowering, rstd, 1)


@rule("native_group_norm")
def _native_group_norm(
    lowering: Lowering,
    input: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    N: Size,
    C: Size,
    HxW: Size,
    group: int,
    eps: float,
) -> tuple[TensorValue | None, ...]:
    shape = input.shape
    if input.dtype not in FLOATING or 0 in shape:
        return NotImplemented
    each = floordiv(C, group)
    grouped = (shape[0], group, each, *shape[2:])  # [N, G, C/G, spatial]
    dims = tuple(range(2, len(grouped)))
    rows = regrouped(input, grouped)
    rest, mean, squared = moments(lowering, rows, dims)
    squared = _as_rows_overflow(lowering, rows, mean, squared, count_of(grouped, dims))
    rstd = _reciprocal_root(lowering, squared, eps)
    accumulator = mean.dtype

    def body(index: IndexTuple) -> Expr:
        channel = index[1]
        row = (index[0], floordiv(channel, each))
        scale = rstd.load(row)
        if weight is not None:
            scale = ex.mul(scale, ex.cast(weight.load((channel,)), accumulator))
        shift = ex.cast(bias.load((channel,)), accumulator) if bias is not None else None
        return _scaled_from(
            input.load(index), mean.load(row), rest.load(row) if rest is not None else None, scale, shift
        )

    out = lowering.compute(lowering.out[0], body, "0") if lowering.needed(0) else None
    return out, _statistics_output(lowering, mean, 1), _statistics_output(lowering, rstd, 2)


def regrouped(value: TensorValue, grouped: tuple[Size, ...]) -> TensorValue:
    """[N, C, spatial] as `grouped` [N, G, C/G, spatial], for its loads alone: its strides are of no interest."""
    each = grouped[2]
    return TensorValue(
        TensorRef(value.used().ref.buffer, value.dtype, grouped, contiguous_strides(grouped)),
        _compose(value, lambda index: (index[0], add(mul(index[1], each), index[2]), *index[3:])),
        value.stored_dtype,
    )


def _compose(value: TensorValue, outer: Any) -> Any:
    inner = value.index_map
    return outer if inner is None else (lambda index: inner(outer(index)))


# Batch norm ----------------------------------------


def _in_rows(value: TensorValue) -> bool:
    """Whether eager's kernels on a CPU take `value` as rows of channels or of pixels: contiguous, or with the channels
    of an image last. Then they compute x * scale + constant, else element by element."""
    shape, strides, rank = value.shape, value.ref.strides, len(value.shape)
    orders = [tuple(range(rank)), (0, *range(2, rank), 1)] if rank > 3 else [tuple(range(rank))]

    def is_packed(order: tuple[int, ...]) -> bool:
        packed = contiguous_strides(tuple(shape[k] for k in order))
        return all(strides[k] == step or shape[k] == 1 for k, step in zip(order, packed))

    return any(is_packed(order) for order in orders)


def _normalized_by(
    lowering: Lowering,
    input: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    mean: TensorValue,
    rstd: TensorValue,
    meta: TensorMeta,
) -> TensorValue:
    """x * scale + shift, one of each per channel (ATen's batch_norm_cpu_collect_linear_and_constant_terms)."""
    accumulator = mean.dtype
    channels = mean.shape

    def channel(value: TensorValue, index: IndexTuple) -> Expr:
        return ex.cast(value.load(index), accumulator)

    scale = rstd
    if weight is not None:
        scale = lowering.compute_fresh(
            channels,
            accumulator,
            lambda i: ex.mul(rstd.load(i), channel(weight, i)),
            "scale",
        )

    def shift_body(index: IndexTuple) -> Expr:
        product_ = ex.mul(mean.load(index), scale.load(index))
        return ex.sub(channel(bias, index) if bias is not None else ex.like(0, product_), product_)

    shift = lowering.compute_fresh(channels, accumulator, shift_body, "shift")

    def body(index: IndexTuple) -> Expr:
        at = (index[1],)
        return ex.add(ex.mul(ex.cast(input.load(index), accumulator), scale.load(at)), shift.load(at))

    return lowering.compute(meta, body, "0")


def _is_finite(a: Expr) -> Expr:
    return ex.compare("lt", ex.unary("abs", a), ex.like(math.inf, a))


def _centered_by(
    lowering: Lowering,
    input: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    rest: TensorValue | None,
    mean: TensorValue,
    rstd: TensorValue,
) -> TensorValue:
    """(x - mean) * scale + bias. Eager's constant term is 0 without a bias, so no result is -0. Where the scale is out
    of range, eager's order of operations shows: x * scale + (bias - mean * scale), as if the mean were 0, or
    (x - mean) * rstd * weight + bias."""
    accumulator = rstd.dtype

    def offset(index: IndexTuple, like: Expr) -> Expr:
        """The bias; on a CPU 0 for -0: eager takes the scaled mean from it there, which is hardly ever 0."""
        zero = ex.like(0, like)
        if bias is not None and not lowering.numerics.shifts_once:
            return ex.cast(bias.load(index), accumulator)
        return ex.add(ex.cast(bias.load(index), accumulator), zero) if bias is not None else zero

    in_rows = not lowering.numerics.rows_by_layout or _in_rows(input)
    if weight is not None and not in_rows:

        def one_by_one(index: IndexTuple) -> Expr:
            at = (index[1],)
            left = rest.load(at) if rest is not None else None
            normalized = _scaled_from(input.load(index), mean.load(at), left, rstd.load(at), None)
            factor = ex.cast(weight.load(at), accumulator)
            return ex.add(ex.mul(normalized, factor), offset(at, factor))

        return lowering.compute(lowering.out[0], one_by_one, "0")
    scale, middle = rstd, mean
    shift: TensorValue | None = None
    if weight is not None:
        scale = lowering.compute_fresh(
            rstd.shape, accumulator, lambda i: ex.mul(rstd.load(i), ex.cast(weight.load(i), accumulator)), "scale"
        )
    if weight is not None and lowering.numerics.shifts_once:

        def constant(index: IndexTuple) -> Expr:
            factor = scale.load(index)
            term = offset(index, factor)
            usual = ex.sub(term, ex.mul(rest.load(index), factor)) if rest is not None else term
            return ex.where(_is_finite(factor), usual, ex.sub(term, ex.mul(mean.load(index), factor)))

        def middle_of(index: IndexTuple) -> Expr:
            value = mean.load(index)
            return ex.where(_is_finite(scale.load(index)), value, ex.like(0, value))

        shift = lowering.compute_fresh(rstd.shape, accumulator, constant, "shift")
        middle, rest = lowering.compute_fresh(rstd.shape, accumulator, middle_of, "middle"), None

    def body(index: IndexTuple) -> Expr:
        at = (index[1],)
        factor = scale.load(at)
        term = shift.load(at) if shift is not None else offset(at, factor)
        left = rest.load(at) if rest is not None else None
        if left is not None and bias is not None and not lowering.numerics.shifts_once:
            # A bias of -0 less 0 or -0 would be 0.
            term = ex.where(ex.compare("eq", ex.mul(left, factor), ex.like(0, factor)), term, _less(term, left, factor))
            left = None
        return _scaled_from(input.load(index), middle.load(at), left, factor, term)

    return lowering.compute(lowering.out[0], body, "0")


def _inference(
    lowering: Lowering,
    input: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    running_mean: TensorValue,
    running_var: TensorValue,
    eps: float,
) -> Any:
    accumulator = compute_dtype(input.dtype)
    if lowering.needed(1) or lowering.needed(2):
        for position in (1, 2):
            if lowering.out[position] is not None and lowering.out[position].shape != (0,):
                return NotImplemented

    def rstd_of(index: IndexTuple) -> Expr:
        shifted = ex.add(ex.cast(running_var.load(index), accumulator), ex.constant(eps, accumulator))
        return ex.unary("rsqrt", shifted)

    if lowering.numerics.rows_by_layout and _in_rows(input):
        mean = lowering.compute_fresh(
            running_mean.shape, accumulator, lambda i: ex.cast(running_mean.load(i), accumulator), "mean"
        )
        rstd = lowering.compute_fresh(running_var.shape, accumulator, rstd_of, "rstd")
        out = _normalized_by(lowering, input, weight, bias, mean, rstd, lowering.out[0])
    else:
        # Element by element, as ATen's kernel on CUDA (a kernel for the channels alone would be one more launch), and
        # its kernel on a CPU for other strides.
        def body(index: IndexTuple) -> Expr:
            at = (index[1],)
            centered = ex.sub(ex.cast(input.load(index), accumulator), ex.cast(running_mean.load(at), accumulator))
            return _affine(
                ex.mul(centered, rstd_of(at)),
                ex.cast(weight.load(at), accumulator) if weight is not None else None,
                ex.cast(bias.load(at), accumulator) if bias is not None else ex.like(0, centered),
            )

        out = lowering.compute(lowering.out[0], body, "0")
    empties = tuple(
        lowering.compute(meta, lambda index: ex.constant(0, accumulator), str(position + 1))
        if meta is not None and lowering.needed(position + 1)
        else None
        for position, meta in enumerate(lowering.out[1:])
    )
    return (out, *empties)


def usable(*values: TensorValue | None) -> bool:
    return all(value is None or value.dtype in FLOATING for value in values)


@rule("_native_batch_norm_legit_no_training")
def _no_training(
    lowering: Lowering,
    input: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    running_mean: TensorValue,
    running_var: TensorValue,
    momentum: float,
    eps: float,
) -> TensorValue:
    if not usable(input, weight, bias, running_mean, running_var):
        return NotImplemented
    return _inference(lowering, input, weight, bias, running_mean, running_var, eps)


def _training(
    lowering: Lowering,
    input: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    running_mean: TensorValue | None,
    running_var: TensorValue | None,
    momentum: float,
    eps: float,
    stats_from: int | None,
) -> Any:
    """Batch statistics. With `stats_from`, results from there on are the new running mean and variance."""
    shape = input.shape
    if 0 in shape:
        return NotImplemented
    dims = tuple(k for k in range(len(shape)) if k != 1)
    sum_dtype = "float32" if input.dtype == "bfloat16" else "float64"
    rest, mean, spread = moments(lowering, input, dims, sum_dtype, running=False)

    def squared_at(index: IndexTuple) -> Expr:
        """What overflowed is infinite, as eager's sum of squares."""
        value, middle = spread.load(index), mean.load(index)
        overflows = Compute("and", (ex.test("isnan", value), _is_finite(middle)), "bool")
        return ex.where(overflows, ex.like(math.inf, value), value)

    squared = lowering.compute_fresh(spread.shape, spread.dtype, squared_at, "spread")
    rstd = _reciprocal_root(lowering, squared, eps)
    out = _centered_by(lowering, input, weight, bias, rest, mean, rstd)
    results: list[Any] = [
        out,
        _statistics_output(lowering, mean, 1),
        _statistics_output(lowering, rstd, 2),
    ]
    if stats_from is None:
        return tuple(results)
    count = product(shape[d] for d in dims)
    if not isinstance(count, int):
        return NotImplemented
    # The running variance takes the unbiased estimate.
    bessel = count / (count - 1) if count > 1 else math.nan
    while len(results) < stats_from:
        results.append(None)
    for position, (running, fresh, factor) in enumerate(((running_mean, mean, 1.0), (running_var, squared, bessel))):
        meta = lowering.out[stats_from + position]
        if running is None or not lowering.needed(stats_from + position):
            results.append(None)
            continue

        def updated(index: IndexTuple, running: Any = running, fresh: Any = fresh, factor: float = factor) -> Expr:
            dtype = fresh.dtype
            new = fresh.load(index)
            new = ex.mul(new, ex.constant(factor, dtype)) if factor != 1.0 else new
            old = ex.cast(running.load(index), dtype)
            return ex.add(ex.mul(ex.constant(momentum, dtype), new), ex.mul(ex.constant(1 - momentum, dtype), old))

        results.append(lowering.compute(meta, updated, str(stats_from + position)))
    return tuple(results)


@rule("native_batch_norm")
def _native_batch_norm(
    lowering: Lowering,
    input: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    running_mean: TensorValue | None,
    running_var: TensorValue | None,
    training: bool,
    momentum: float,
    eps: float,
) -> TensorValue:
    if not usable(input, weight, bias, running_mean, running_var):
        return NotImplemented
    if not training:
        if running_mean is None or running_var is None:
            return NotImplemented
        return _inference(lowering, input, weight, bias, running_mean, running_var, eps)
    if running_mean is not None:
        return NotImplemented  # updates the running statistics in place: through ATen, as a write
    return _training(lowering, input, weight, bias, None, None, momentum, eps, None)


@rule("_native_batch_norm_legit.no_stats")
def _no_stats(
    lowering: Lowering,
    input: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    training: bool,
    momentum: float,
    eps: float,
) -> TensorValue:
    if not usable(input, weight, bias) or not training:
        return NotImplemented
    return _training(lowering, input, weight, bias, None, None, momentum, eps, None)


@rule("_native_batch_norm_legit_functional")
def _functional(
    lowering: Lowering,
    input: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    running_mean: TensorValue,
    running_var: TensorValue,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[TensorValue | None, ...]:
    if not usable(input, weight, bias, running_mean, running_var):
        return NotImplemented
    if training:
        return _training(lowering, input, weight, bias, running_mean, running_var, momentum, eps, 3)
    results = _inference(lowering, input, weight, bias, running_mean, running_var, eps)
    return results if results is NotImplemented else (*results[:3], running_mean, running_var)
