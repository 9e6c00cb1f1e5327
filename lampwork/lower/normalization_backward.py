"""Derivatives of the normalisations. With y = (x - m) * r the normalised input and h = g * w:

    layer norm    dx = r * (h - mean(h) - y * mean(h * y))      means over the row
    RMS norm      dx = r * (h - y * mean(h * y))
    group norm    as layer norm, over each group of channels
    batch norm    as layer norm with h = g, over all but the channels, times w
                  (running statistics: dx = g * w * r)
    and           dw = sum(g * y), db = sum(g)                  over all that shares a weight

The sums of one tensor over the same dimensions share a kernel with each other.

A CPU's kernels of layer and group norm sum h and h * x instead of h * y:

    dx = r * h + b * x + c      b = (sum(h) * m - sum(h * x)) * r^3 / n,    c = -b * m - sum(h) * r / n

That loses digits where the mean is large, so ours is the form above. But where a gradient is infinite the two differ:
this one makes NaN of most elements, and it is taken there (`Numerics.norms_sum_inputs`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lampwork.ir.dtype import compute_dtype
from lampwork.ir.loops import Expr
from lampwork.ir.record import record
from lampwork.ir.size import Size, add, floordiv, mul, product
from lampwork.lower import expressions as ex
from lampwork.lower.lower import Lowering
from lampwork.lower.normalization import usable
from lampwork.lower.reduction import sum_of
from lampwork.lower.rules import rule
from lampwork.lower.values import IndexTuple, TensorValue

Body = Callable[[IndexTuple], Expr]


def _loaded(value: TensorValue, dtype: str) -> Body:
    return lambda index: ex.cast(value.load(index), dtype)


@record
class _Rows:
    """What was normalised over `dims` of a tensor: the gradient h of the result y, and the factor r of the input's."""

    shape: tuple[Size, ...]
    dims: Sequence[int]
    dtype: str
    h: Body
    y: Body
    r: Body

    def numel(self, lowering: Lowering) -> Expr:
        return lowering.operand(product(self.shape[k] for k in self.dims), (), (), self.dtype)

    def sum_along(self, lowering: Lowering) -> TensorValue:
        """sum(h * y), for each row."""
        body: Body = lambda index: ex.mul(self.h(index), self.y(index))
        return lowering.reduce("sum", self.shape, self.dims, body, self.dtype, "along")

    def sum(self, lowering: Lowering, name: str) -> TensorValue:
        """sum(h), for each row."""
        return lowering.reduce("sum", self.shape, self.dims, self.h, self.dtype, name)

    def sum_of_inputs(self, lowering: Lowering, x: Body) -> TensorValue:
        """sum(h * x), for each row."""
        body: Body = lambda index: ex.mul(self.h(index), x(index))
        return lowering.reduce("sum", self.shape, self.dims, body, self.dtype, "raw")

    def gradient(self, lowering: Lowering, along: TensorValue, plain: TensorValue | None) -> Body:
        """`index -> r * (h - mean(h) - y * mean(h * y))`, given the sums; without mean(h) where that sum is None."""
        chosen = frozenset(self.dims)
        numel = self.numel(lowering)

        def body(index: IndexTuple) -> Expr:
            row = tuple([each for k, each in enumerate(index) if k not in chosen])
            value = self.h(index)
            if plain is not None:
                value = ex.sub(value, ex.div(plain.load(row), numel))
            return ex.mul(self.r(index), ex.sub(value, ex.mul(self.y(index), ex.div(along.load(row), numel))))

        return body


def _of_raw_sums(h: Expr, x: Expr, mean: Expr, r: Expr, plain: Expr, raw: Expr, numel: Expr) -> Expr:
    """One element of the same, given sum(h) and sum(h * x) of its row, as eager's kernels on a CPU compute it."""
    b = ex.div(ex.mul(ex.sub(ex.mul(plain, mean), raw), ex.mul(ex.mul(r, r), r)), numel)
    c = ex.sub(ex.mul(ex.unary("neg", b), mean), ex.div(ex.mul(plain, r), numel))
    return ex.add(ex.add(ex.mul(r, h), ex.mul(b, x)), c)


def _unless_infinite(
    gradient: Body,
    row_of: Callable[[IndexTuple], IndexTuple],
    sums: tuple[TensorValue, TensorValue],
    h: Body,
    x: Body,
    mean: Body,
    r: Body,
    numel: Expr,
) -> Body:
    """`gradient`, but for rows whose sum(h), the first of `sums`, is not finite what a CPU's kernels make of them."""

    def body(index: IndexTuple) -> Expr:
        plain, raw = (each.load(row_of(index)) for each in sums)
        theirs = _of_raw_sums(h(index), x(index), mean(index), r(index), plain, raw, numel)
        return ex.where(ex.is_finite(plain), gradient(index), theirs)

    return body


def _of_one_element(h: Body, x: Body, mean: Body, r: Body, begins_with_zero: bool) -> Body:
    """The same where a row is one element: a zero, unless something overflows, whose sign depends on how the sums of h
    and of h * x begin."""

    def body(index: IndexTuple) -> Expr:
        plain, raw = h(index), ex.mul(h(index), x(index))
        if begins_with_zero:
            plain, raw = ex.add(plain, ex.like(0, plain)), ex.add(raw, ex.like(0, raw))
        return _of_raw_sums(h(index), x(index), mean(index), r(index), plain, raw, ex.like(1, plain))

    return body


def _scaled(g: Body, weight: Body | None) -> Body:
    return g if weight is None else lambda index: ex.mul(g(index), weight(index))


@rule("native_layer_norm_backward")
def _layer_norm(
    lowering: Lowering,
    grad_out: TensorValue,
    input: TensorValue,
    normalized_shape: tuple[Size, ...],
    mean: TensorValue,
    rstd: TensorValue,
    weight: TensorValue | None,
    bias: TensorValue | None,
    output_mask: tuple[bool, ...],
) -> TensorValue:
    return _of_last_dimensions(lowering, grad_out, input, normalized_shape, mean, rstd, weight, output_mask)


@rule("_fused_rms_norm_backward")
def _rms_norm(
    lowering: Lowering,
    grad_out: TensorValue,
    input: TensorValue,
    normalized_shape: tuple[int, ...],
    rstd: TensorValue,
    weight: TensorValue | None,
    output_mask: tuple[bool, ...],
) -> TensorValue:
    return _of_last_dimensions(lowering, grad_out, input, normalized_shape, None, rstd, weight, output_mask)


def _of_last_dimensions(
    lowering: Lowering,
    grad_out: TensorValue,
    input: TensorValue,
    normalized_shape: Any,
    mean: TensorValue | None,
    rstd: TensorValue,
    weight: TensorValue | None,
    mask: Sequence[bool],
) -> Any:
    """Gradients of layer norm, or of RMS norm where there is no mean. Statistics have size 1 in the dimensions
    normalised over."""
    shape, inner = input.shape, len(normalized_shape)
    outer = len(shape) - inner
    if not usable(grad_out, input, mean, rstd, weight) or 0 in shape:
        return NotImplemented
    dtype = compute_dtype(input.dtype)
    ones = (0,) * inner
    g, x = _loaded(grad_out, dtype), _loaded(input, dtype)
    r: Body = lambda index: ex.cast(rstd.load((*index[:outer], *ones)), dtype)

    m: Body | None = None if mean is None else lambda index: ex.cast(mean.load((*index[:outer], *ones)), dtype)

    def y(index: IndexTuple) -> Expr:
        value = x(index) if m is None else ex.sub(x(index), m(index))
        return ex.mul(value, r(index))

    h = _scaled(g, None if weight is None else (lambda index: ex.cast(weight.load(index[outer:]), dtype)))
    results: list[Any] = [None] * len(lowering.out)
    alone = lowering.numerics.single_terms_stay and product(shape[outer:]) == 1
    if mask[0] and lowering.needed(0) and m is not None and alone:
        results[0] = lowering.compute(lowering.out[0], _of_one_element(h, x, m, r, False), "0")
    elif mask[0] and lowering.needed(0):
        rows = _Rows(shape, tuple(range(outer, len(shape))), dtype, h, y, r)
        along = rows.sum_along(lowering)
        plain = rows.sum(lowering, "sum") if mean is not None else None
        body = rows.gradient(lowering, along, plain)
        if m is not None and plain is not None and lowering.numerics.norms_sum_inputs:
            sums, numel = (plain, rows.sum_of_inputs(lowering, x)), rows.numel(lowering)
            body = _unless_infinite(body, lambda index: index[:outer], sums, h, x, m, r, numel)
        results[0] = lowering.compute(lowering.out[0], body, "0")
    _of_parameters(lowering, shape, tuple(range(outer)), g, y, mask, results)
    return tuple(results)


def _of_parameters(
    lowering: Lowering,
    shape: tuple[Size, ...],
    dims: Sequence[int],
    g: Body,
    y: Body,
    mask: Sequence[bool],
    results: list[object],
) -> None:
    """Fills in the gradients of weight and bias: sums over `dims`, the dimensions that parameters do not have."""
    bodies: tuple[Body, Body] = (lambda index: ex.mul(g(index), y(index)), g)
    for position, body in enumerate(bodies, 1):
        if position < len(mask) and mask[position] and lowering.needed(position):
            results[position] = sum_of(lowering, shape, dims, body, lowering.out[position], str(position))


@rule("native_group_norm_backward")
def _group_norm(
    lowering: Lowering,
    grad_out: TensorValue,
    input: TensorValue,
    mean: TensorValue,
    rstd: TensorValue,
    weight: TensorValue | None,
    N: Size,
    C: Size,
    HxW: Size,
    group: int,
    output_mask: tuple[bool, ...],
) -> tuple[TensorValue | None, ...]:
    shape = input.shape
    if not usable(grad_out, input, mean, rstd, weight) or 0 in shape:
        return NotImplemented
    dtype = compute_dtype(input.dtype)
    each = floordiv(C, group)
    count = product((each, *shape[2:]))
    g, x = _loaded(grad_out, dtype), _loaded(input, dtype)
    group_of: Callable[[IndexTuple], IndexTuple] = lambda index: (index[0], floordiv(index[1], each))
    r: Body = lambda index: ex.cast(rstd.load(group_of(index)), dtype)
    m: Body = lambda index: ex.cast(mean.load(group_of(index)), dtype)
    y: Body = lambda index: ex.mul(ex.sub(x(index), m(index)), r(index))
    scale: Body | None = None if weight is None else lambda index: ex.cast(weight.load((index[1],)), dtype)
    # All sums are sums of these two, of one number for each image and channel.
    channels = _Rows(shape, tuple(range(2, len(shape))), dtype, g, y, r)
    along, plain = channels.sum_along(lowering), channels.sum(lowering, "plain")
    raw = channels.sum_of_inputs(lowering, x) if lowering.numerics.norms_sum_inputs else None
    results: list[Any] = [None, None, None]
    if output_mask[0] and lowering.needed(0) and lowering.numerics.single_terms_stay and count == 1:
        body = _of_one_element(_scaled(g, scale), x, m, r, True)
        results[0] = lowering.compute(lowering.out[0], body, "0")
    elif output_mask[0] and lowering.needed(0):
        space = (shape[0], group, each)
        numel = lowering.operand(count, (), (), dtype)

        def sum_of_group(part: str, value: TensorValue) -> TensorValue:
            def at(index: IndexTuple) -> Expr:
                pair = (index[0], add(mul(index[1], each), index[2]))
                return value.load(pair) if scale is None else ex.mul(value.load(pair), scale(pair))

            return lowering.reduce("sum", space, (2,), at, dtype, part)

        def mean_of_group(part: str, total: TensorValue) -> TensorValue:
            return lowering.compute_fresh(
                total.shape, dtype, lambda index: ex.div(total.load(index), numel), f"{part}_mean"
            )

        total = sum_of_group("group_plain", plain)
        slope = mean_of_group("group_along", sum_of_group("group_along", along))
        shift = mean_of_group("group_plain", total)
        h = _scaled(g, scale)

        def body(index: IndexTuple) -> Expr:
            row = group_of(index)
            rest = ex.sub(ex.sub(h(index), shift.load(row)), ex.mul(y(index), slope.load(row)))
            return ex.mul(r(index), rest)

        if raw is not None:
            sums = total, sum_of_group("group_raw", raw)
            body = _unless_infinite(body, group_of, sums, h, x, m, r, numel)
        results[0] = lowering.compute(lowering.out[0], body, "0")

    def along_of(index: IndexTuple) -> Expr:
        if raw is None:
            return along.load(index)
        row = (index[0], floordiv(index[1], each))
        mean_and_r = ex.cast(mean.load(row), dtype), ex.cast(rstd.load(row), dtype)
        theirs = ex.mul(ex.sub(raw.load(index), ex.mul(plain.load(index), mean_and_r[0])), mean_and_r[1])
        return ex.where(ex.is_finite(plain.load(index)), along.load(index), theirs)

    for position, value in ((1, along_of), (2, plain.load)):
        if output_mask[position] and lowering.needed(position):
            results[position] = sum_of(lowering, shape[:2], (0,), value, lowering.out[position], str(position))
    return tuple(results)


@rule("native_batch_norm_backward")
def _batch_norm(
    lowering: Lowering,
    grad_out: TensorValue,
    input: TensorValue,
    weight: TensorValue | None,
    running_mean: TensorValue | None,
    running_var: TensorValue | None,
    save_mean: TensorValue | None,
    save_invstd: TensorValue | None,
    train: bool,
    eps: float,
    output_mask: tuple[bool, ...],
) -> tuple[TensorValue | None, ...]:
    shape = input.shape
    if not usable(grad_out, input, weight, running_mean, running_var, save_mean, save_invstd) or 0 in shape:
        return NotImplemented
    dtype = compute_dtype(input.dtype)
    if train:
        if save_mean is None or save_invstd is None:
            return NotImplemented
        mean, rstd = _loaded(save_mean, dtype), _loaded(save_invstd, dtype)
    else:
        if running_mean is None or running_var is None:
            return NotImplemented
        variance = _loaded(running_var, dtype)
        mean = _loaded(running_mean, dtype)
        rstd = lambda at: ex.unary("rsqrt", ex.add(variance(at), ex.constant(eps, dtype)))
    g, x = _loaded(grad_out, dtype), _loaded(input, dtype)
    r: Body = lambda index: rstd((index[1],))
    y: Body = lambda index: ex.mul(ex.sub(x(index), mean((index[1],))), r(index))
    scale: Body | None = None if weight is None else lambda index: ex.cast(weight.load((index[1],)), dtype)
    dims = tuple(k for k in range(len(shape)) if k != 1)
    results: list[Any] = [None, None, None]
    if not train:
        if output_mask[0] and lowering.needed(0):
            body = _scaled(lambda index: ex.mul(g(index), r(index)), scale)
            results[0] = lowering.compute(lowering.out[0], body, "0")
        _of_parameters(lowering, shape, dims, g, y, output_mask, results)
        return tuple(results)
    # The sums of the first result are the other two.
    rows = _Rows(shape, dims, dtype, g, y, _scaled(r, scale))
    along, plain = rows.sum_along(lowering), rows.sum(lowering, "plain")
    if output_mask[0] and lowering.needed(0):
        body = rows.gradient(lowering, along, plain)
        results[0] = lowering.compute(lowering.out[0], body, "0")
    for position, value in ((1, along), (2, plain)):
        if output_mask[position] and lowering.needed(position):
            results[position] = lowering.compute(lowering.out[position], value.load, str(position))
    return tuple(results)


@rule("batch_norm_backward")
def _batch_norm_with_reserve(
    lowering: Lowering,
    grad_out: TensorValue,
    input: TensorValue,
    weight: TensorValue | None,
    running_mean: TensorValue | None,
    running_var: TensorValue | None,
    save_mean: TensorValue | None,
    save_var: TensorValue | None,
    update: bool,
    eps: float,
    output_mask: tuple[bool, ...],
    reserve: TensorValue,
) -> tuple[TensorValue | None, ...]:
    """The CPU reserves nothing and saves the inverse deviation; what a GPU's library reserves is its own."""
    if not lowering.numerics.reserves_deviation:
        return NotImplemented
    return _batch_norm(
        lowering, grad_out, input, weight, running_mean, running_var, save_mean, save_var, update, eps, output_mask
    )
