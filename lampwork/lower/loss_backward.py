"""Derivatives of softmax and of losses.

_softmax_backward_data(g, y, d)       s[i] = sum_r g[i, r] * y[i, r];  out = (g - s) * y
nll_loss_backward(g, x, t)            out[i, c] = -g * w[c] / total where c == t[i], else 0: nothing is scattered
both after each other                 the sum over classes of the second is its one value: no sum is computed
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.fx import Node

from lampwork import _torch
from lampwork.ir.dtype import FLOATING, compute_dtype
from lampwork.ir.loops import Compute, Expr
from lampwork.ir.size import Size, product
from lampwork.lower import expressions as ex
from lampwork.lower.activation import floating
from lampwork.lower.expressions import as_index
from lampwork.lower.indexing import clamped, fresh_symbol
from lampwork.lower.lower import Lowering
from lampwork.lower.promotion import promote, result_type
from lampwork.lower.rules import rule
from lampwork.lower.values import IndexTuple, TensorValue

# Softmax ----------------------------------------


@floating("_softmax_backward_data")
def _softmax(
    lowering: Lowering, grad_output: TensorValue, output: TensorValue, dim: int, input_dtype: torch.dtype
) -> TensorValue:
    shape = output.shape
    compute = compute_dtype(output.dtype)
    gradient = lambda index: ex.cast(grad_output.load(index), compute)
    value = lambda index: ex.cast(output.load(index), compute)
    dims = (dim % len(shape),) if shape else ()
    total = _row_sum(lowering, shape, dims, lambda index: ex.mul(gradient(index), value(index)), compute)

    def body(index: IndexTuple) -> Expr:
        return ex.mul(ex.sub(gradient(index), total(index)), value(index))

    return lowering.compute(lowering.out, body)


@floating("_log_softmax_backward_data")
def _log_softmax(
    lowering: Lowering, grad_output: TensorValue, output: TensorValue, dim: int, input_dtype: torch.dtype
) -> TensorValue:
    shape = output.shape
    compute = compute_dtype(output.dtype)
    dims = (dim % len(shape),) if shape else ()
    gradient = lambda index: ex.cast(grad_output.load(index), compute)
    total = _sum_of_picked(lowering, dims)
    if total is None:
        total = _row_sum(lowering, shape, dims, gradient, compute)

    def body(index: IndexTuple) -> Expr:
        exponential = ex.unary("exp", ex.cast(output.load(index), compute))
        return ex.sub(gradient(index), ex.mul(exponential, ex.cast(total(index), compute)))

    return lowering.compute(lowering.out, body)


def _row_sum(
    lowering: Lowering, shape: tuple[Size, ...], dims: tuple[int, ...], term: Callable[[IndexTuple], Expr], compute: str
) -> Callable[[IndexTuple], Expr]:
    """The sum of a softmax's row. Where the row is the last dimension, eager's sum on a CPU begins with the first term:
    that of a single -0 is -0."""
    if lowering.numerics.single_terms_stay and dims in ((), (len(shape) - 1,)) and all(shape[dim] == 1 for dim in dims):
        return term
    sums = lowering.reduce("sum", shape, dims, term, compute, "sum")
    return lambda index: sums.load(_without(index, dims))


def _without(index: IndexTuple, dims: tuple[int, ...]) -> IndexTuple:
    return tuple(each for k, each in enumerate(index) if k not in dims)


# Negative log likelihood ----------------------------------------


class _Picked:
    """The gradient of a negative log likelihood: `value(point)` at class `target(point)` of each point, zero elsewhere;
    all zero where `ignored(point)`. Points are indices of the target."""

    def __init__(
        self,
        lowering: Lowering,
        grad_output: TensorValue,
        self_: TensorValue,
        target: TensorValue,
        weight: TensorValue | None,
        reduction: int,
        ignore_index: Size,
        total_weight: TensorValue,
    ) -> None:
        self.batched = len(self_.shape) > 1
        self.classes = self_.shape[1] if self.batched else self_.shape[0]
        self.compute = compute = compute_dtype(self_.dtype)
        self.target = target.load
        self.shape = target.shape
        symbol = fresh_symbol(lowering, self.classes)

        def ignored(point: IndexTuple) -> Expr:
            return ex.compare("eq", target.load(point), as_index(ignore_index))

        def value(point: IndexTuple) -> Expr:
            """For a target that was in range in the forward operator; others are zero."""
            of_point = point if reduction == 0 and grad_output.shape else ()
            if reduction and grad_output.shape:
                of_point = (0,) * len(grad_output.shape)
            gradient = ex.unary("neg", ex.cast(grad_output.load(of_point), compute))
            if weight is not None:
                binding = ((symbol.name, clamped(target.load(point), self.classes)),)
                gradient = ex.mul(gradient, ex.cast(weight.load((symbol,), indirect=binding), compute))
            if reduction == 1:
                gradient = ex.div(gradient, ex.cast(total_weight.load(()), compute))
            return ex.where(ignored(point), ex.constant(0, compute), gradient)

        self.value = value

    def split(self, index: IndexTuple) -> tuple[IndexTuple, Size]:
        """The point and the class of an index of the gradient."""
        if not self.batched:
            return (() if not self.shape else (0,)), index[0]
        return (index[0], *index[2:]), index[1]

    def at(self, index: IndexTuple) -> Expr:
        point, position = self.split(index)
        chosen = ex.compare("eq", self.target(point), as_index(position))
        return ex.where(chosen, self.value(point), ex.constant(0, self.compute))


@rule("nll_loss_backward", "nll_loss2d_backward")
def _nll_loss(
    lowering: Lowering,
    grad_output: TensorValue,
    self: TensorValue,
    target: TensorValue,
    weight: TensorValue | None,
    reduction: int,
    ignore_index: int,
    total_weight: TensorValue,
) -> TensorValue:
    if self.dtype not in FLOATING or target.dtype != "int64" or 0 in self.shape:
        return NotImplemented
    if len(self.shape) == 1 and target.shape not in ((), (1,)):
        return NotImplemented
    picked = _Picked(lowering, grad_output, self, target, weight, reduction, ignore_index, total_weight)
    return lowering.compute(lowering.out, picked.at)


_PICKED = ("aten::nll_loss_backward.default", "aten::nll_loss2d_backward.default")


def _sum_of_picked(lowering: Lowering, dims: tuple[int, ...]) -> Callable[[IndexTuple], Expr] | None:
    """`index -> sum over the classes` of the gradient, where the current node takes it from a negative log likelihood:
    one value and zeros, whose sum is that value. None: it comes from elsewhere. Exact."""
    source = lowering.node.args[0]
    if not isinstance(source, Node) or not _torch.is_operator(source.target):
        return None
    if _torch.operator_name(source.target) not in _PICKED or source.kwargs:
        return None
    arguments = [lowering.argument(each) for each in source.args]
    if dims != ((1,) if len(arguments[1].shape) > 1 else (0,)) or arguments[1].dtype not in FLOATING:
        return None
    if arguments[1].dtype in ("float16", "bfloat16"):  # stored rounded
        return None
    picked = _Picked(lowering, *arguments)
    classes = as_index(picked.classes)

    def total(index: IndexTuple) -> Expr:
        point, _ = picked.split(index)
        wanted = picked.target(point)
        inside = Compute(
            "and", (ex.compare("ge", wanted, ex.constant(0, "int64")), ex.compare("lt", wanted, classes)), "bool"
        )
        total = ex.where(inside, picked.value(point), ex.constant(0, picked.compute))
        # The zeros of the other classes make 0 of -0.
        return total if picked.classes == 1 else ex.add(total, ex.constant(0, picked.compute))

    return total


# Pointwise losses ----------------------------------------


def _loss(name: str, function: Callable[..., Expr], parameters: int = 0) -> None:
    """`name(gradient, x, target, reduction[, parameter])` is `gradient * scale * function(x, target[, parameter])`,
    `scale` being 1 over the number of elements for a mean."""

    @floating(name)
    def lower_loss(
        lowering: Lowering,
        grad_output: TensorValue,
        self: TensorValue,
        target: TensorValue,
        reduction: int,
        *rest: object,
    ) -> TensorValue:
        if target.dtype not in FLOATING or self.dtype not in FLOATING:
            return NotImplemented
        # One kernel computes in the operands' common type, whatever it writes to.
        common = result_type(grad_output, self, target)
        scale = _scale(lowering, self, reduction, common)

        def body(g: Expr, x: Expr, t: Expr) -> Expr:
            value = function(x, t, *rest) if parameters else function(x, t)
            return ex.mul(ex.mul(scale, value), g) if scale is not None else ex.mul(value, g)

        return lowering.pointwise((grad_output, self, target), body, common)


def _scale(lowering: Lowering, self: TensorValue, reduction: int, dtype: str) -> Expr | None:
    """1 / number of elements for a mean, else None; in what `dtype` is computed in."""
    if reduction != 1:
        return None
    dtype = compute_dtype(dtype)
    numel = product(self.shape)
    if isinstance(numel, int):
        return ex.constant(1.0 / numel if numel else float("inf"), dtype)
    return ex.div(ex.constant(1, dtype), lowering.operand(numel, (), (), dtype))


def _bounded(distance: Expr, limit: float, inside: Expr, outside: float) -> Expr:
    """`inside` where the distance is between -limit and limit, else `outside` with its sign."""
    upper = ex.where(ex.compare("ge", distance, ex.like(limit, distance)), ex.like(outside, distance), inside)
    return ex.where(ex.compare("le", distance, ex.like(-limit, distance)), ex.like(-outside, distance), upper)


def _smooth_l1(x: Expr, t: Expr, beta: float) -> Expr:
    distance = ex.sub(x, t)
    return _bounded(distance, beta, ex.div(distance, ex.like(beta, distance)), 1.0)


def _huber(x: Expr, t: Expr, delta: float) -> Expr:
    distance = ex.sub(x, t)
    return _bounded(distance, delta, distance, delta)


def _mse(x: Expr, t: Expr) -> Expr:
    return ex.mul(ex.like(2, x), ex.sub(x, t))


@floating("soft_margin_loss_backward")
def _soft_margin_loss(
    lowering: Lowering, grad_output: TensorValue, self: TensorValue, target: TensorValue, reduction: int
) -> TensorValue:
    """-t * z / (1 + z) * gradient, where z = exp(-t * x), by ATen's operators (native/Loss.cpp): z is kept in the
    common type of `t` and `x`, and what it is multiplied with in that of `x`. Both overflow where eager's do."""
    if target.dtype not in FLOATING or self.dtype not in FLOATING:
        return NotImplemented
    own, common = self.dtype, result_type(self, target)
    wide = compute_dtype(promote(own, common))
    scale = _scale(lowering, self, reduction, own)

    def body(g: Expr, x: Expr, t: Expr) -> Expr:
        x, t = (ex.cast(each, compute_dtype(common)) for each in (x, t))
        z = ex.kept_in(ex.unary("exp", ex.kept_in(ex.mul(ex.unary("neg", t), x), common)), common)
        value = ex.kept_in(ex.mul(t, z), own)
        value = ex.unary("neg", value if scale is None else ex.kept_in(ex.mul(value, scale), own))
        above = ex.kept_in(ex.add(z, ex.like(1, z)), common)
        value = ex.kept_in(ex.div(ex.cast(value, wide), ex.cast(above, wide)), own)
        return ex.mul(ex.cast(value, g.dtype), g)

    return lowering.pointwise((grad_output, self, target), body, promote(promote(own, common), grad_output.dtype))


_loss("mse_loss_backward", _mse)
_loss("smooth_l1_loss_backward", _smooth_l1, 1)
_loss("huber_loss_backward", _huber, 1)


@floating("binary_cross_entropy_backward")
def _binary_cross_entropy(
    lowering: Lowering,
    grad_output: TensorValue,
    self: TensorValue,
    target: TensorValue,
    weight: TensorValue | None = None,
    reduction: int = 1,
) -> TensorValue:
    """g * (x - t) / max((1 - x) * x, 1e-12), weighted."""
    if target.dtype not in FLOATING:
        return NotImplemented
    scale = _scale(lowering, self, reduction, lowering.out.dtype)

    def body(g: Expr, x: Expr, t: Expr, *weights: Expr) -> Expr:
        spread = ex.maximum(ex.mul(ex.sub(ex.like(1, x), x), x), ex.like(1e-12, x))
        value = ex.div(ex.mul(g, ex.sub(x, t)), spread)
        for each in weights:
            value = ex.mul(value, each)
        return ex.mul(value, scale) if scale is not None else value

    return lowering.pointwise((grad_output, self, target, *([] if weight is None else [weight])), body)
