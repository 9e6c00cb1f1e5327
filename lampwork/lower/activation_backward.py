"""Derivatives of activations, by ATen's formulas (native/cpu/Activation.cpp): one nest each, so that a chain of them
and the sums after it are one kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lampwork.ir.dtype import FLOATING, compute_dtype
from lampwork.ir.loops import Compute, Expr
from lampwork.ir.size import add, mul
from lampwork.lower import expressions as ex
from lampwork.lower.activation import SIXTH, floating, limits_of_logit
from lampwork.lower.lower import Lowering
from lampwork.lower.rules import rule
from lampwork.lower.values import IndexTuple, Number, TensorValue


def _of_two(name: str, function: Callable[[Expr, Expr], Expr]) -> None:
    """Operator `name(gradient, x)` is `function` of both, element by element."""

    @floating(name)
    def lower_gradient(lowering: Lowering, grad_output: TensorValue, self: TensorValue) -> TensorValue:
        return lowering.pointwise((grad_output, self), function)


def _one(x: Expr) -> Expr:
    return ex.like(1, x)


def _silu(g: Expr, x: Expr) -> Expr:
    s = ex.unary("sigmoid", x)
    return ex.mul(ex.mul(g, s), ex.add(_one(x), ex.mul(x, ex.sub(_one(x), s))))


def _mish(g: Expr, x: Expr) -> Expr:
    s = ex.unary("sigmoid", x)
    t = ex.unary("tanh", ex.unary("log1p", ex.unary("exp", x)))
    return ex.mul(g, ex.add(t, ex.mul(ex.mul(x, s), ex.sub(_one(x), ex.mul(t, t)))))


def _hardswish(g: Expr, x: Expr) -> Expr:
    inner = ex.mul(g, ex.add(ex.div(x, ex.like(3, x)), ex.like(0.5, x)))
    upper = ex.where(ex.compare("lt", x, ex.like(3, x)), inner, g)
    return ex.where(ex.compare("le", x, ex.like(-3, x)), ex.like(0, x), upper)


def _hardsigmoid(g: Expr, x: Expr) -> Expr:
    inside = Compute("and", (ex.compare("gt", x, ex.like(-3, x)), ex.compare("lt", x, ex.like(3, x))), "bool")
    return ex.where(inside, ex.mul(g, ex.like(SIXTH, g)), ex.like(0, g))


_of_two("silu_backward", _silu)
_of_two("mish_backward", _mish)
_of_two("hardswish_backward", _hardswish)
_of_two("hardsigmoid_backward", _hardsigmoid)
# These two take the result of the forward operator.
_of_two("sigmoid_backward", lambda g, y: ex.mul(ex.mul(g, ex.sub(_one(y), y)), y))
_of_two("tanh_backward", lambda g, y: ex.mul(g, ex.sub(_one(y), ex.mul(y, y))))


@floating("gelu_backward")
def _gelu(lowering: Lowering, grad_output: TensorValue, self: TensorValue, approximate: str = "none") -> TensorValue:
    def exact(g: Expr, x: Expr) -> Expr:
        half = ex.like(0.5, x)
        share = ex.mul(half, ex.add(_one(x), ex.unary("erf", ex.mul(x, ex.like(math.sqrt(0.5), x)))))
        density = ex.unary("exp", ex.mul(ex.mul(x, x), ex.like(-0.5, x)))
        return ex.mul(g, ex.add(share, ex.mul(ex.mul(x, density), ex.like(1.0 / math.sqrt(2.0 * math.pi), x))))

    def tanh(g: Expr, x: Expr) -> Expr:
        scale, square = math.sqrt(2.0 / math.pi), ex.mul(x, x)
        cubic = ex.mul(ex.like(0.044715, x), ex.mul(square, x))
        inner = ex.mul(ex.like(scale, x), ex.add(x, cubic))
        # (1 + tanh(y)) / 2 == sigmoid(2 y), and 1 - tanh(y)^2 == 4 sigmoid(2 y) sigmoid(-2 y)
        s = ex.unary("sigmoid", ex.add(inner, inner))
        slope = ex.mul(ex.like(2 * scale, x), ex.add(_one(x), ex.mul(ex.like(3 * 0.044715, x), square)))
        return ex.mul(g, ex.add(s, ex.mul(ex.mul(x, slope), ex.mul(s, ex.sub(_one(x), s)))))

    return lowering.pointwise((grad_output, self), tanh if approximate == "tanh" else exact)


@rule("threshold_backward")
def _threshold(lowering: Lowering, grad_output: TensorValue, self: TensorValue, threshold: Number) -> TensorValue:
    if lowering.out.dtype not in FLOATING:
        return NotImplemented
    return lowering.pointwise(
        (grad_output, self), lambda g, x: ex.where(ex.compare("le", x, ex.like(threshold, x)), ex.like(0, g), g)
    )


@floating("hardtanh_backward")
def _hardtanh(
    lowering: Lowering, grad_output: TensorValue, self: TensorValue, min_val: Number, max_val: Number
) -> TensorValue:
    def body(g: Expr, x: Expr) -> Expr:
        outside = Compute(
            "or", (ex.compare("le", x, ex.like(min_val, x)), ex.compare("ge", x, ex.like(max_val, x))), "bool"
        )
        return ex.where(outside, ex.like(0, g), g)

    return lowering.pointwise((grad_output, self), body)


@floating("leaky_relu_backward")
def _leaky_relu(
    lowering: Lowering, grad_output: TensorValue, self: TensorValue, negative_slope: Number, self_is_result: bool
) -> TensorValue:
    return lowering.pointwise(
        (grad_output, self),
        lambda g, x: ex.where(ex.compare("gt", x, ex.like(0, x)), g, ex.mul(g, ex.like(negative_slope, g))),
    )


@floating("elu_backward")
def _elu(
    lowering: Lowering,
    grad_output: TensorValue,
    alpha: Any,
    scale: Any,
    input_scale: Number,
    is_result: bool,
    self_or_result: TensorValue,
) -> TensorValue:
    def body(g: Expr, x: Expr) -> Expr:
        negative = ex.like(float(alpha) * float(scale), x)
        below = ex.mul(g, ex.like(input_scale, g))
        if is_result:
            below = ex.mul(below, ex.add(x, negative))
        else:  # eager's order: of small numbers a product with the power first would leave few digits
            below = ex.mul(ex.mul(below, negative), ex.unary("exp", ex.mul(x, ex.like(input_scale, x))))
        return ex.where(ex.compare("le", x, ex.like(0, x)), below, ex.mul(g, ex.like(scale, g)))

    return lowering.pointwise((grad_output, self_or_result), body)


@floating("softplus_backward")
def _softplus(
    lowering: Lowering, grad_output: TensorValue, self: TensorValue, beta: Number, threshold: Number
) -> TensorValue:
    def body(g: Expr, x: Expr) -> Expr:
        scaled = ex.mul(x, ex.like(beta, x))
        z = ex.unary("exp", scaled)
        smooth = ex.div(ex.mul(g, z), ex.add(z, _one(z)))
        return ex.where(ex.compare("gt", scaled, ex.like(threshold, x)), g, smooth)

    return lowering.pointwise((grad_output, self), body)


@floating("log_sigmoid_backward")
def _log_sigmoid(lowering: Lowering, grad_output: TensorValue, self: TensorValue, buffer: TensorValue) -> TensorValue:
    """exp(-|x|), which the forward operator keeps on the CPU, is computed again."""

    def body(g: Expr, x: Expr) -> Expr:
        negative = ex.compare("lt", x, ex.like(0, x))
        z = ex.unary("exp", ex.unary("neg", ex.unary("abs", x)))
        share = ex.div(z, ex.add(_one(z), z))
        return ex.mul(g, ex.where(negative, ex.sub(_one(z), share), share))

    return lowering.pointwise((grad_output, self), body)


@floating("hardshrink_backward", "softshrink_backward")
def _shrink(lowering: Lowering, grad_output: TensorValue, self: TensorValue, lambd: Number) -> TensorValue:
    lambd = lowering.rounded(lambd, self.dtype, as_elements=True)

    def body(g: Expr, x: Expr) -> Expr:
        inside = Compute(
            "and", (ex.compare("ge", x, ex.like(-lambd, x)), ex.compare("le", x, ex.like(lambd, x))), "bool"
        )
        return ex.where(inside, ex.like(0, g), g)

    return lowering.pointwise((grad_output, self), body)


@floating("_prelu_kernel_backward")
def _prelu(
    lowering: Lowering, grad_output: TensorValue, self: TensorValue, weight: TensorValue
) -> tuple[TensorValue | None, ...]:
    first, second = lowering.out
    compute = compute_dtype(first.dtype)

    def operands(index: IndexTuple) -> tuple[Expr, ...]:
        return tuple(lowering.operand(each, index, first.shape, compute) for each in (grad_output, self, weight))

    def of_input(index: IndexTuple) -> Expr:
        g, x, w = operands(index)
        return ex.where(ex.compare("gt", x, ex.like(0, x)), g, ex.mul(w, g))

    def of_weight(index: IndexTuple) -> Expr:
        g, x, _ = operands(index)
        return ex.where(ex.compare("gt", x, ex.like(0, x)), ex.like(0, x), ex.mul(x, g))

    return (
        lowering.compute(first, of_input, "0") if lowering.needed(0) else None,
        lowering.compute(second, of_weight, "1") if lowering.needed(1) else None,
    )


@floating("glu_backward")
def _glu(lowering: Lowering, grad_output: TensorValue, self: TensorValue, dim: int) -> TensorValue:
    meta = lowering.out
    dim %= len(meta.shape)
    half = grad_output.shape[dim]
    compute = compute_dtype(meta.dtype)

    def body(index: IndexTuple) -> Expr:
        position = index[dim]
        first = ex.below(position, half)
        second = ex.unary("not", first)

        def at(value: TensorValue, where: Any, mask: Expr) -> Expr:
            return ex.cast(value.load((*index[:dim], where, *index[dim + 1 :]), mask), compute)

        back, forth = add(position, mul(half, -1)), add(position, half)
        gate = ex.unary("sigmoid", at(self, forth, first))
        of_value = ex.mul(gate, at(grad_output, position, first))
        gate = ex.unary("sigmoid", at(self, position, second))
        slope = ex.mul(ex.sub(_one(gate), gate), gate)
        of_gate = ex.mul(ex.mul(slope, at(self, back, second)), at(grad_output, back, second))
        return ex.where(first, of_value, of_gate)

    return lowering.compute(meta, body)


@floating("logit_backward")
def _logit(lowering: Lowering, grad_output: TensorValue, self: TensorValue, eps: float | None = None) -> TensorValue:
    limits = limits_of_logit(lowering, eps, lowering.out.dtype)

    def body(g: Expr, x: Expr) -> Expr:
        low, high = limits or (0.0, 1.0)
        outside = Compute("or", (ex.compare("lt", x, ex.like(low, x)), ex.compare("gt", x, ex.like(high, x))), "bool")
        edge = Compute("or", (ex.compare("eq", x, ex.like(0, x)), ex.compare("eq", x, _one(x))), "bool")
        value = ex.div(g, ex.mul(x, ex.sub(_one(x), x)))
        if lowering.numerics.logit_edges:
            # As eager's scalar kernel: 1 / -0.0 would be negative, as it is in its vectorised one, and on a GPU.
            value = ex.where(edge, ex.mul(g, ex.like(math.inf, g)), value)
        return ex.where(outside, ex.like(math.nan if limits is None else 0, x), value)

    return lowering.pointwise((grad_output, self), body)


@rule("native_dropout_backward")
def _dropout(lowering: Lowering, grad_output: TensorValue, mask: TensorValue, scale: float) -> TensorValue:
    if grad_output.dtype not in FLOATING:  # integers have no -0
        return NotImplemented
    return lowering.pointwise((grad_output, mask), lambda g, m: ex.mul(g, ex.mul(m, ex.like(scale, m))))
