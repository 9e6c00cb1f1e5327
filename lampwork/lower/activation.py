"""Activations, by ATen's formulas (native/cpu/Activation.cpp), and pointwise losses."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from lampwork import _torch
from lampwork.ir.dtype import FLOATING, compute_dtype
from lampwork.ir.loops import Compute, Expr
from lampwork.lower import expressions as ex
from lampwork.lower.lower import Lowering
from lampwork.lower.pointwise import limited
from lampwork.lower.promotion import result_type
from lampwork.lower.reduction import mean_of, sum_of
from lampwork.lower.rules import R, rule
from lampwork.lower.values import IndexTuple, Number, TensorValue


def floating(*names: str) -> Callable[[R], R]:
    """As `rule`, for operators that are lowered on floating types only."""

    def register(function: R) -> R:
        @rule(*names)
        def lowerfloating(lowering: Lowering, *args: object, **kwargs: object) -> TensorValue:
            out = lowering.out if hasattr(lowering.out, "dtype") else lowering.out[0]
            return function(lowering, *args, **kwargs) if out.dtype in FLOATING else NotImplemented

        return function

    return register


@floating("gelu")
def _gelu(lowering: Lowering, self: TensorValue, approximate: str = "none") -> TensorValue:
    def tanh(x: Expr) -> Expr:
        cube = ex.mul(ex.mul(x, x), x)
        inner = ex.mul(ex.like(math.sqrt(2.0 / math.pi), x), ex.add(x, ex.mul(ex.like(0.044715, x), cube)))
        # 1 + tanh(y) == 2 sigmoid(2 y), which needs one exponential and keeps the tail
        return ex.mul(x, ex.unary("sigmoid", ex.add(inner, inner)))

    return lowering.pointwise((self,), tanh if approximate == "tanh" else lambda x: ex.unary("gelu", x))


@floating("silu")
def _silu(lowering: Lowering, self: TensorValue) -> TensorValue:
    return lowering.pointwise((self,), lambda x: ex.mul(x, ex.unary("sigmoid", x)))


@floating("mish")
def _mish(lowering: Lowering, self: TensorValue) -> TensorValue:
    return lowering.pointwise((self,), lambda x: ex.mul(x, ex.unary("tanh", ex.unary("log1p", ex.unary("exp", x)))))


def _clamp_constant(x: Expr, low: float, high: float) -> Expr:
    return ex.minimum(ex.maximum(x, ex.like(low, x)), ex.like(high, x))


#: A sixth in single precision, which ATen's kernels multiply by, whatever the type.
SIXTH = 0.1666666716337204


def _sixth_of(lowering: Lowering, x: Expr) -> Expr:
    by_product = lowering.numerics.rounds_sixths
    return ex.mul(x, ex.like(SIXTH, x)) if by_product else ex.div(x, ex.like(6, x))


@floating("hardsigmoid")
def _hardsigmoid(lowering: Lowering, self: TensorValue) -> TensorValue:
    return lowering.pointwise((self,), lambda x: _sixth_of(lowering, _clamp_constant(ex.add(x, ex.like(3, x)), 0, 6)))


@floating("hardswish")
def _hardswish(lowering: Lowering, self: TensorValue) -> TensorValue:
    return lowering.pointwise(
        (self,), lambda x: _sixth_of(lowering, ex.mul(x, _clamp_constant(ex.add(x, ex.like(3, x)), 0, 6)))
    )


@rule("hardtanh")
def _hardtanh(lowering: Lowering, self: TensorValue, min_val: Number = -1, max_val: Number = 1) -> TensorValue:
    if lowering.out.dtype == "bool" or lowering.out.dtype.startswith("u"):
        return NotImplemented
    return lowering.pointwise((self,), lambda x: limited(lowering, x, min_val, max_val))


@floating("leaky_relu")
def _leaky_relu(lowering: Lowering, self: TensorValue, negative_slope: Number = 0.01) -> TensorValue:
    return lowering.pointwise(
        (self,),
        lambda x: ex.where(ex.compare("gt", x, ex.like(0, x)), x, ex.mul(x, ex.like(negative_slope, x))),
    )


def _by_sign(lowering: Lowering, x: Expr, negative: Expr, positive: Expr) -> Expr:
    """`negative` where `x` is below 0, else `positive`; at 0 as the back end's eager kernel chooses. NaN stays NaN."""
    if lowering.numerics.elu_curves_at_zero:
        return ex.where(ex.compare("gt", x, ex.like(0, x)), positive, negative)
    return ex.where(ex.compare("lt", x, ex.like(0, x)), negative, positive)


@floating("elu")
def _elu(lowering: Lowering, self: TensorValue, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> TensorValue:
    def body(x: Expr) -> Expr:
        negative = ex.mul(
            ex.unary("expm1", ex.mul(x, ex.like(input_scale, x))), ex.like(float(alpha) * float(scale), x)
        )
        return _by_sign(lowering, x, negative, ex.mul(x, ex.like(scale, x)))

    return lowering.pointwise((self,), body)


@floating("softplus")
def _softplus(lowering: Lowering, self: TensorValue, beta: Number = 1, threshold: Number = 20) -> TensorValue:
    def body(x: Expr) -> Expr:
        scaled = ex.mul(x, ex.like(beta, x))
        smooth = ex.div(ex.unary("log1p", ex.unary("exp", scaled)), ex.like(beta, x))
        return ex.where(ex.compare("gt", scaled, ex.like(threshold, x)), x, smooth)

    return lowering.pointwise((self,), body)


@floating("log_sigmoid_forward")
def _log_sigmoid_forward(lowering: Lowering, self: TensorValue) -> tuple[TensorValue | None, ...]:
    meta, buffer = lowering.out
    shape = meta.shape

    def operands(index: tuple) -> tuple[Expr, Expr]:
        x = lowering.operand(self, index, shape, "float32" if meta.dtype != "float64" else "float64")
        return x, ex.unary("exp", ex.unary("neg", ex.unary("abs", x)))

    def body(index: tuple) -> Expr:
        x, tail = operands(index)
        return ex.sub(ex.minimum(ex.like(0, x), x), ex.unary("log1p", tail))

    kept = None  # what the gradient needs: empty on a GPU
    if lowering.needed(1):
        zero = ex.constant(0, buffer.dtype)
        kept = lowering.compute(buffer, lambda index: operands(index)[1] if buffer.shape == shape else zero, "1")
    return lowering.compute(meta, body, "0"), kept


@rule("threshold")
def _threshold(lowering: Lowering, self: TensorValue, threshold: Number, value: Number) -> TensorValue:
    if self.dtype not in FLOATING and not (type(threshold) is int and type(value) is int and self.dtype != "bool"):
        return NotImplemented
    return lowering.pointwise(
        (self,), lambda x: ex.where(ex.compare("le", x, ex.like(threshold, x)), ex.like(value, x), x)
    )


@floating("hardshrink")
def _hardshrink(lowering: Lowering, self: TensorValue, lambd: Number = 0.5) -> TensorValue:
    lambd = lowering.rounded(lambd, self.dtype, as_elements=True)

    def body(x: Expr) -> Expr:
        inside = Compute(
            "and", (ex.compare("ge", x, ex.like(-lambd, x)), ex.compare("le", x, ex.like(lambd, x))), "bool"
        )
        return ex.where(inside, ex.like(0, x), x)

    return lowering.pointwise((self,), body)


@floating("softshrink")
def _softshrink(lowering: Lowering, self: TensorValue, lambd: Number = 0.5) -> TensorValue:
    lambd = lowering.rounded(lambd, self.dtype, as_elements=True)

    def body(x: Expr) -> Expr:
        limit, nothing = ex.like(lambd, x), ex.like(0, x)
        # NaN stays. On a CPU so does the sign: there it is x * 0.
        by_product = lowering.numerics.shrinks_by_product
        zero = ex.mul(x, nothing) if by_product else ex.where(ex.test("isnan", x), x, nothing)
        low = ex.where(ex.compare("lt", x, ex.unary("neg", limit)), ex.add(x, limit), zero)
        return ex.where(ex.compare("gt", x, limit), ex.sub(x, limit), low)

    return lowering.pointwise((self,), body)


@floating("_prelu_kernel")
def _prelu(lowering: Lowering, self: TensorValue, weight: TensorValue) -> TensorValue:
    return lowering.pointwise(
        (self, weight), lambda x, w: ex.where(ex.compare("gt", x, ex.like(0, x)), x, ex.mul(w, x))
    )


@floating("glu")
def _glu(lowering: Lowering, self: TensorValue, dim: int = -1) -> TensorValue:
    meta = lowering.out
    dim %= len(meta.shape)
    half = meta.shape[dim]
    compute = "float64" if meta.dtype == "float64" else "float32"

    def body(index: tuple) -> Expr:
        gate_index = (*index[:dim], index[dim] + half, *index[dim + 1 :])
        value, gate = ex.cast(self.load(index), compute), ex.cast(self.load(gate_index), compute)
        return ex.mul(value, ex.unary("sigmoid", gate))

    return lowering.compute(meta, body)


def limits_of_logit(lowering: Lowering, eps: float | None, dtype: str) -> tuple[float, float] | None:
    """Between which numbers logit takes its input, if asked to: `eps` and 1 - `eps`, both rounded as the kernel holds
    them (a CPU in the element type, a GPU in float32 for half types)."""
    if eps is None or eps < 0:
        return None
    held = dtype if lowering.numerics.rounds_numbers else compute_dtype(dtype)
    low = torch.tensor(eps, dtype=getattr(torch, held))
    return low.item(), (1 - low).item()


@floating("logit")
def _logit(lowering: Lowering, self: TensorValue, eps: float | None = None) -> TensorValue:
    limits = limits_of_logit(lowering, eps, lowering.out.dtype)

    def body(x: Expr) -> Expr:
        one = ex.like(1, x)
        if limits is not None:
            low, high = limits
            below = ex.where(ex.compare("gt", x, ex.like(high, x)), ex.like(high, x), x)
            x = ex.where(ex.compare("lt", x, ex.like(low, x)), ex.like(low, x), below)
        return ex.unary("log", ex.div(x, ex.sub(one, x)))

    return lowering.pointwise((self,), body)


@floating("celu")
def _celu(lowering: Lowering, self: TensorValue, alpha: Any = 1.0) -> TensorValue:
    def body(x: Expr) -> Expr:
        negative = ex.mul(ex.unary("expm1", ex.mul(x, ex.like(1.0 / alpha, x))), ex.like(alpha, x))
        return _by_sign(lowering, x, negative, x)

    return lowering.pointwise((self,), body)


@floating("sinc")
def _sinc(lowering: Lowering, self: TensorValue) -> TensorValue:
    def body(x: Expr) -> Expr:
        scaled = ex.mul(x, ex.like(math.pi, x))
        return ex.where(ex.compare("eq", x, ex.like(0, x)), ex.like(1, x), ex.div(ex.unary("sin", scaled), scaled))

    return lowering.pointwise((self,), body)


@floating("special_entr")
def _entr(lowering: Lowering, self: TensorValue) -> TensorValue:
    def body(x: Expr) -> Expr:
        zero = ex.like(0, x)
        outside = ex.where(ex.compare("eq", x, zero), zero, ex.like(-math.inf, x))
        value = ex.where(ex.compare("gt", x, zero), ex.mul(ex.unary("neg", x), ex.unary("log", x)), outside)
        return ex.where(ex.test("isnan", x), x, value)

    return lowering.pointwise((self,), body)


# Losses: pointwise, then no reduction (0), mean (1) or sum (2) ----------------------------------------


def _loss(name: str, function: Callable[..., Expr], parameters: int = 0) -> None:
    @floating(name)
    def lower_loss(
        lowering: Lowering, self: TensorValue, target: TensorValue, *rest: object, **named: object
    ) -> TensorValue:
        # mse_loss(self, target, reduction), smooth_l1_loss(..., reduction, beta), huber_loss(..., reduction, delta)
        reduction = rest[0] if rest else named.get("reduction", 1)
        extra = rest[1] if len(rest) > 1 else named.get("beta", named.get("delta", 1.0))
        if self.dtype not in FLOATING or target.dtype not in FLOATING:
            return NotImplemented
        arguments = (extra,) if parameters else ()
        if reduction == 0:
            # One kernel computes in the operands' common type, whatever it writes to.
            common = result_type(self, target)
            return lowering.pointwise((self, target), lambda a, b: function(a, b, *arguments), common)
        if self.shape != target.shape:
            return NotImplemented
        compute = "float64" if "float64" in (self.dtype, target.dtype) else "float32"
        body = lambda index: function(
            ex.cast(self.load(index), compute), ex.cast(target.load(index), compute), *arguments
        )
        dims = range(len(self.shape))
        return (mean_of if reduction == 1 else sum_of)(lowering, self.shape, dims, body, lowering.out)


def _smooth_l1(a: Expr, b: Expr, beta: float) -> Expr:
    distance = ex.unary("abs", ex.sub(a, b))
    if beta == 0:
        return distance
    square = ex.div(ex.mul(ex.mul(ex.like(0.5, a), distance), distance), ex.like(beta, a))
    return ex.where(ex.compare("lt", distance, ex.like(beta, a)), square, ex.sub(distance, ex.like(0.5 * beta, a)))


def _huber(a: Expr, b: Expr, delta: float) -> Expr:
    distance = ex.unary("abs", ex.sub(a, b))
    square = ex.mul(ex.mul(ex.like(0.5, a), distance), distance)
    linear = ex.mul(ex.like(delta, a), ex.sub(distance, ex.like(0.5 * delta, a)))
    return ex.where(ex.compare("le", distance, ex.like(delta, a)), square, linear)


def _squared_error(a: Expr, b: Expr) -> Expr:
    difference = ex.sub(a, b)
    return ex.mul(difference, difference)


@floating("binary_cross_entropy")
def _binary_cross_entropy(
    lowering: Lowering, self: TensorValue, target: TensorValue, weight: TensorValue | None = None, reduction: int = 1
) -> TensorValue:
    """-(t * max(log x, -100) + (1 - t) * max(log(1 - x), -100)), weighted. A check raises outside [0, 1]."""
    if target.dtype not in FLOATING or self.shape != target.shape or 0 in self.shape:
        return NotImplemented
    shape = self.shape
    compute = "float64" if self.dtype == "float64" else "float32"

    def outside(operand: TensorValue, index: tuple) -> Expr:
        x = ex.cast(operand.load(index), compute)
        inside = Compute("and", (ex.compare("ge", x, ex.like(0, x)), ex.compare("le", x, ex.like(1, x))), "bool")
        return Compute("not", (inside,), "bool")

    def checked(operand: TensorValue, name: str) -> Callable[[Expr, tuple], Expr]:
        message = f"all elements of {name} should be between 0 and 1"
        return lowering.check(shape, lambda index: outside(operand, index), message, "RuntimeError")

    in_range = checked(self, "input")
    looks = lowering.numerics.checks_targets and _torch.cross_entropy_checks_targets()
    in_range_too = checked(target, "target") if looks else lambda value, index: value

    def body(index: tuple) -> Expr:
        x = in_range(ex.cast(self.load(index), compute), index)
        t = in_range_too(ex.cast(target.load(index), compute), index)
        floor, one = ex.like(-100, x), ex.like(1, x)
        near = ex.maximum(ex.unary("log", x), floor)
        far = ex.maximum(ex.unary("log1p", ex.unary("neg", x)), floor)
        value = ex.sub(ex.mul(ex.sub(t, one), far), ex.mul(t, near))
        return value if weight is None else ex.mul(value, lowering.operand(weight, index, shape, compute))

    if reduction == 0:
        return lowering.compute(lowering.out, body)
    return (mean_of if reduction == 1 else sum_of)(lowering, shape, range(len(shape)), body, lowering.out)


@floating("binary_cross_entropy_with_logits")
def _binary_cross_entropy_with_logits(
    lowering: Lowering,
    self: TensorValue,
    target: TensorValue,
    weight: TensorValue | None = None,
    pos_weight: TensorValue | None = None,
    reduction: int = 1,
) -> TensorValue:
    """(1 - t) * x - (1 + (p - 1) * t) * log_sigmoid(x), weighted. Of several types eager rounds what is in between,
    each part to another one of them."""
    parts = [each for each in (self, target, weight, pos_weight) if each is not None]
    if self.dtype not in FLOATING or any(each.dtype != self.dtype for each in parts):
        return NotImplemented
    if self.shape != target.shape or 0 in self.shape:
        return NotImplemented
    shape = self.shape
    compute = "float64" if self.dtype == "float64" else "float32"

    def body(index: tuple) -> Expr:
        x, t = ex.cast(self.load(index), compute), ex.cast(target.load(index), compute)
        zero, one = ex.like(0, x), ex.like(1, x)
        small = ex.unary("log1p", ex.unary("exp", ex.unary("neg", ex.unary("abs", x))))
        log_sigmoid = ex.sub(ex.minimum(x, zero), small)
        if pos_weight is not None:
            p = lowering.operand(pos_weight, index, shape, compute)
            log_sigmoid = ex.mul(log_sigmoid, ex.add(ex.mul(ex.sub(p, one), t), one))
        value = ex.sub(ex.mul(ex.sub(one, t), x), log_sigmoid)
        return value if weight is None else ex.mul(value, lowering.operand(weight, index, shape, compute))

    if reduction == 0:
        return lowering.compute(lowering.out, body)
    return (mean_of if reduction == 1 else sum_of)(lowering, shape, range(len(shape)), body, lowering.out)


@floating("soft_margin_loss")
def _soft_margin_loss(lowering: Lowering, self: TensorValue, target: TensorValue, reduction: int = 1) -> TensorValue:
    """log1p(exp(-x * t)) by ATen's operators (native/Loss.cpp), each of which keeps its result in the type of `x`: the
    exponential overflows where eager's does."""
    if target.dtype not in FLOATING or (reduction and self.shape != target.shape):
        return NotImplemented
    own, common = self.dtype, result_type(self, target)
    compute = compute_dtype(common)

    def loss(x: Expr, t: Expr) -> Expr:
        product = ex.kept_in(ex.mul(ex.unary("neg", x), t), own)
        return ex.unary("log1p", ex.kept_in(ex.unary("exp", product), own))

    if reduction == 0:
        return lowering.pointwise((self, target), loss, common)

    def body(index: IndexTuple) -> Expr:
        return ex.kept_in(loss(ex.cast(self.load(index), compute), ex.cast(target.load(index), compute)), own)

    return (mean_of if reduction == 1 else sum_of)(lowering, self.shape, range(len(self.shape)), body, lowering.out)


_loss("mse_loss", _squared_error)
_loss("smooth_l1_loss", _smooth_l1, 1)
_loss("huber_loss", _huber, 1)
