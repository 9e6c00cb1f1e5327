"""Formulas of ATen's kernels for GPUs, which rules have under `numerics="eager"` there: as CUDA's compiler rounds them.

    sigmoid(x)      1 / (1 + exp(-x)) with a division, where the other rule takes a step of Newton's
    x / 3.0         x * (1 / 3.0): the inverse is rounded first

Sums of products are rounded once where `Lowering.contracts` says so. A formula is used once `backends/exact.py` has a
row for its operator; `python -m tests.numerics.candidates` tries them all.
"""

from __future__ import annotations

import math

import numpy as np

from lampwork.ir.dtype import FLOATING, compute_dtype
from lampwork.ir.loops import Expr
from lampwork.lower import expressions as ex
from lampwork.lower.lower import Lowering
from lampwork.lower.pointwise import _sum_of_product
from lampwork.lower.rules import RULES, on_gpus
from lampwork.lower.values import Number, Result, TensorValue


def _one(x: Expr) -> Expr:
    return ex.like(1, x)


def _sigmoid_of(x: Expr) -> Expr:
    return ex.div(_one(x), ex.add(_one(x), ex.unary("exp", ex.unary("neg", x))))


@on_gpus("div.Tensor", "div.Scalar", "true_divide.Tensor")
def _div(lowering: Lowering, self: TensorValue | Number, other: TensorValue | Number) -> Result:
    dtype = lowering.out.dtype
    if not isinstance(other, (int, float)) or dtype not in FLOATING:
        return RULES[lowering.origin.op](lowering, self, other)
    with np.errstate(all="ignore"):
        kind = np.float64 if compute_dtype(dtype) == "float64" else np.float32
        inverse = float(kind(np.float64(1) / np.float64(other)))
    return lowering.pointwise((self,), lambda x: ex.mul(x, ex.like(inverse, x)))


def _plus_scaled(lowering: Lowering, a: TensorValue | Number, b: TensorValue | Number, alpha: float) -> TensorValue:
    return lowering.pointwise((a, b), lambda a, b: _sum_of_product(lowering, ex.like(alpha, b), b, a))


@on_gpus("add.Tensor", "add.Scalar", "sub.Tensor", "sub.Scalar")
def _add(lowering: Lowering, self: TensorValue, other: TensorValue | Number, alpha: Number = 1) -> Result:
    if alpha in (1, -1) or not isinstance(alpha, (int, float)) or lowering.out.dtype not in FLOATING:
        return RULES[lowering.origin.op](lowering, self, other, alpha)
    return _plus_scaled(lowering, self, other, -alpha if "::sub" in lowering.origin.op else alpha)


@on_gpus("sigmoid")
def _sigmoid(lowering: Lowering, self: TensorValue) -> TensorValue:
    return lowering.pointwise((self,), _sigmoid_of)


@on_gpus("silu")
def _silu(lowering: Lowering, self: TensorValue) -> TensorValue:
    return lowering.pointwise((self,), lambda x: ex.div(x, ex.add(_one(x), ex.unary("exp", ex.unary("neg", x)))))


@on_gpus("silu_backward")
def _silu_backward(lowering: Lowering, grad_output: TensorValue, self: TensorValue) -> TensorValue:
    def body(g: Expr, x: Expr) -> Expr:
        s = _sigmoid_of(x)
        return ex.mul(ex.mul(g, s), _sum_of_product(lowering, x, ex.sub(_one(x), s), _one(x)))

    return lowering.pointwise((grad_output, self), body)


@on_gpus("sigmoid_backward")
def _sigmoid_backward(lowering: Lowering, grad_output: TensorValue, output: TensorValue) -> TensorValue:
    return lowering.pointwise((grad_output, output), lambda g, y: ex.mul(ex.mul(g, ex.sub(_one(y), y)), y))


@on_gpus("tanh_backward")
def _tanh_backward(lowering: Lowering, grad_output: TensorValue, output: TensorValue) -> TensorValue:
    return lowering.pointwise(
        (grad_output, output), lambda g, y: ex.mul(g, _sum_of_product(lowering, ex.unary("neg", y), y, _one(y)))
    )


_ROOT_OF_HALF, _TWO_BY_ROOT_OF_PI = math.sqrt(0.5), 2.0 / math.sqrt(math.pi)


@on_gpus("gelu")
def _gelu(lowering: Lowering, self: TensorValue, approximate: str = "none") -> TensorValue:
    def plain(x: Expr) -> Expr:
        erf = ex.unary("erf", ex.mul(x, ex.like(_ROOT_OF_HALF, x)))
        return ex.mul(ex.mul(x, ex.like(0.5, x)), ex.add(_one(x), erf))

    def by_tanh(x: Expr) -> Expr:
        cube = ex.mul(ex.mul(x, x), x)
        sum_ = _sum_of_product(lowering, ex.like(0.044715, x), cube, x)
        inner = ex.mul(ex.like(math.sqrt(2.0) * _TWO_BY_ROOT_OF_PI * 0.5, x), sum_)
        return ex.mul(ex.mul(ex.like(0.5, x), x), ex.add(_one(x), ex.unary("tanh", inner)))

    return lowering.pointwise((self,), by_tanh if approximate == "tanh" else plain)


@on_gpus("gelu_backward")
def _gelu_backward(
    lowering: Lowering, grad_output: TensorValue, self: TensorValue, approximate: str = "none"
) -> TensorValue:
    def body(g: Expr, x: Expr) -> Expr:
        erf = ex.unary("erf", ex.mul(x, ex.like(_ROOT_OF_HALF, x)))
        cdf = ex.mul(ex.like(0.5, x), ex.add(_one(x), erf))
        power = ex.unary("exp", ex.mul(ex.mul(ex.like(-0.5, x), x), x))
        pdf = ex.mul(power, ex.like(_TWO_BY_ROOT_OF_PI * _ROOT_OF_HALF * 0.5, x))
        return ex.mul(g, _sum_of_product(lowering, x, pdf, cdf))

    def by_tanh(g: Expr, x: Expr) -> Expr:
        square = ex.mul(x, x)
        beta = ex.like(math.sqrt(2.0) * _TWO_BY_ROOT_OF_PI * 0.5, x)
        inner = ex.mul(beta, _sum_of_product(lowering, ex.like(0.044715, x), ex.mul(square, x), x))
        tanh = ex.unary("tanh", inner)
        left, right = ex.mul(ex.like(0.5, x), x), ex.add(_one(x), tanh)
        of_tanh = _sum_of_product(lowering, ex.unary("neg", tanh), tanh, _one(x))
        of_inner = ex.mul(beta, _sum_of_product(lowering, ex.like(3 * 0.044715, x), square, _one(x)))
        of_right = ex.mul(ex.mul(left, of_tanh), of_inner)
        return ex.mul(g, _sum_of_product(lowering, ex.like(0.5, x), right, of_right))

    return lowering.pointwise((grad_output, self), by_tanh if approximate == "tanh" else body)
