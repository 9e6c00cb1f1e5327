"""Derivatives of the normalisations. With y = (x - m) * r the normalised input and h = g * w:

    layer norm    dx = r * (h - mean(h) - y * mean(h * y))      means over the row
    RMS norm      dx = r * (h - y * mean(h * y))
    group norm    as layer norm, over each group of channels
    batch norm    as layer norm with h = g, over all but the channels, times w
                  (running statistics: dx = g * w * r)
    and           dw = sum(g * y), db = sum(g)                  over all that shares a weight

The sums of one tensor over the same dimensions share a kernel with each other.
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

    def sum_along(self, lowering: Lowering) -> TensorValue:
        """sum(h * y), for each row."""
        body: Body = lambda index: ex.mul(self.h(index), self.y(index))
        return lowering.reduce("sum", self.shape, self.dims, body, self.dtype, "along")

    def sum(self, lowering: Lowering, name: str) -> TensorValue:
        """sum(h), for each row."""
        return lowering.reduce("sum", self.shape, self.dims, self.h, self.dtype, name)

    def gradient(self, lowering: Lowering, along: TensorValue, plain: TensorValue | None) -> Body:
        """`index -> r * (h - mean(h) - y * mean(h * y))`, given the sums; without mean(h) where that sum is None."""
        chosen = frozenset(self.dims)
        numel = lowering.operand(product(self.shape[k] for k in self.dims), (), (), self.dtype)

        def body(index: IndexTuple) -> Expr:
            row = tuple([each for k, each in enumerate(index) if k not in chosen])
            value = self.h(index)
            if plain is not None:
                value = ex.sub(value, ex.div(plain.load(row), numel))
            return ex.mul(self.r(index), ex.sub(value, ex.mul(self.y(index), ex.div(along.load(row), numel))))

        return body


def _of_one_element(h: Body, x: Body, mean: Body, r: Body, begins_with_zero: bool) -> Body:
    """The same where a row is one element, as eager's kernels on a CPU compute it: r * h + b * x + c. A zero, unless
    something overflows, whose sign depends on how the sums of h and of h * x begin."""

    def body(index: IndexTuple) -> Expr:
        m, factor, plain, along = mean(index), r(index), h(index), ex.mul(h(index), x(index))
        if begins_with_zero:
            plain, along = ex.add(plain, ex.like(0, plain)), ex.add(along, ex.like(0, along))
        b = ex.mul(ex.sub(ex.mul(plain, m), along), ex.mul(ex.mul(factor, factor), factor))
        c = ex.sub(ex.mul(ex.unary("neg", b), m), ex.mul(plain, factor))
        return ex.add(ex.add(ex.mul(factor, h(index)), ex.mul(b, x(index))), c)

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
        results[0] = lowering.compute(lowering.out[0], rows.gradient(lowering, along, plain), "0")
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
    results: list[Any] = [None, None, None]
    if output_mask[0] and lowering.needed(0) and lowering.numerics.single_terms_stay and count == 1:
        body = _of_one_element(_scaled(g, scale), x, m, r, True)
        results[0] = lowering.compute(lowering.out[0], body, "0")
    elif output_mask[0] and lowering.needed(0):
        space = (shape[0], group, each)

        def mean_of_group(part: str, value: TensorValue) -> TensorValue:
            def at(index: IndexTuple) -> Expr:
                pair = (index[0], add(mul(index[1], each), index[2]))
                return value.load(pair) if scale is None else ex.mul(value.load(pair), scale(pair))

            total = lowering.reduce("sum", space, (2,), at, dtype, part)
            numel = lowering.operand(count, (), (), dtype)
            return lowering.compute_fresh(
                total.shape, dtype, lambda index: ex.div(total.load(index), numel), f"{part}_mean"
            )

        slope, shift = mean_of_group("group_along", along), mean_of_group("group_plain", plain)
        h = _scaled(g, scale)

        def body(index: IndexTuple) -> Expr:
            row = group_of(index)
            rest = ex.sub(ex.sub(h(index), shift.load(row)), ex.mul(y(index), slope.load(row)))
            return ex.mul(r(index), rest)

        results[0] = lowering.compute(lowering.out[0], body, "0")
    for position, value in ((1, along), (2, plain)):
        if output_mask[position] and lowering.needed(position):
            results[position] = sum_of(lowering, shape[:2], (0,), value.load, lowering.out[position], str(position))
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
