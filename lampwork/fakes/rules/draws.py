"""Shape rules of operators that draw random numbers, and of their gradients. No kernel is asked about the former, as
it would draw."""

from __future__ import annotations

from typing import Any

import torch

from lampwork.fakes.fake import Unsupported
from lampwork.fakes.shapes import (
    Spec,
    Unknown,
    broadcast,
    contiguous,
    has_zero,
    infer,
    materialize,
    preserved,
    rule,
    same_sizes,
    surely_same,
)
from lampwork.fakes.strides import Scalar

aten = torch.ops.aten


@rule("_sample_dirichlet", "_standard_gamma", "poisson")
def of_one(x: torch.Tensor, generator: torch.Generator | None = None) -> Spec:
    if not x.dtype.is_floating_point:
        raise Unknown
    return Spec(tuple(x.size()), contiguous(x.size()), x.dtype)


@rule("bernoulli", "bernoulli.p")
def bernoulli(x: torch.Tensor, p: float | None = None, *, generator: torch.Generator | None = None) -> Spec:
    return Spec(tuple(x.size()), contiguous(x.size()), x.dtype)


@rule("binomial", "_standard_gamma_grad")
def of_two_alike(x: torch.Tensor, other: torch.Tensor, generator: torch.Generator | None = None) -> Spec:
    if x.dtype != other.dtype or not x.dtype.is_floating_point or not surely_same(x.size(), other.size()):
        raise Unknown
    return Spec(tuple(x.size()), contiguous(x.size()), x.dtype)


@rule("normal.Tensor_Tensor")
def normal(mean: torch.Tensor, std: torch.Tensor, *, generator: torch.Generator | None = None) -> Spec:
    shape = broadcast([mean.size(), std.size()])
    return Spec(shape, contiguous(shape), mean.dtype)


@rule("normal.Tensor_float", "normal.float_Tensor")
def normal_beside_number(*parameters: torch.Tensor | Scalar, generator: torch.Generator | None = None) -> Spec:
    """`std` may be left out beside a tensor `mean`."""
    (x,) = [each for each in parameters if isinstance(each, torch.Tensor)]
    return Spec(tuple(x.size()), contiguous(x.size()), x.dtype)


@rule("bernoulli.Tensor", "cauchy", "exponential", "geometric", "log_normal", "normal_functional", "random",
      "random.from", "random.to", "uniform")  # fmt: skip
def drawn_into_copy(x: torch.Tensor, *parameters: Any, generator: torch.Generator | None = None) -> Spec:
    return Spec(tuple(x.size()), preserved(x), x.dtype)


@rule("rrelu_with_noise")
def rrelu(x: torch.Tensor, noise: torch.Tensor, lower: Scalar = 0.125, upper: Scalar = 1 / 3, training: bool = False,
          generator: torch.Generator | None = None) -> Spec:  # fmt: skip
    if not x.dtype.is_floating_point or not x.is_cpu:
        raise Unknown
    return Spec(tuple(x.size()), contiguous(x.size()), x.dtype)


@rule("rrelu_with_noise_functional")
def rrelu_and_noise(x: torch.Tensor, noise: torch.Tensor, *others: Any, **more: Any) -> tuple[Spec, Spec]:
    return rrelu(x, noise, *others, **more), Spec(tuple(noise.size()), preserved(noise), noise.dtype)


@rule("native_dropout")
def native_dropout(x: torch.Tensor, p: float, train: bool | None) -> tuple[Spec, Spec]:
    """On a CPU the result is a product with the mask."""
    if not x.dtype.is_floating_point:
        raise Unknown
    if x.is_cpu and has_zero(x.size()):
        raise Unsupported("native_dropout of a tensor without elements, which returns the tensor itself")
    strides = preserved(x)
    mask = Spec(tuple(x.size()), strides, torch.bool)
    if x.is_cpu and train is not False:
        strides = infer(aten.mul.Tensor, (x, materialize(mask, (x,), {})), {}).stride()
    return Spec(tuple(x.size()), strides, x.dtype), mask


@rule("_dirichlet_grad")
def dirichlet(x: torch.Tensor, alpha: torch.Tensor, total: torch.Tensor) -> Spec:
    if not same_sizes(x.size(), alpha.size()) or not same_sizes(x.size(), total.size()):
        raise Unknown
    return Spec(tuple(x.size()), contiguous(x.size()), x.dtype)
