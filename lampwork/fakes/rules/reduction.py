"""Shape rules of reductions and scans."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from lampwork.fakes.shapes import (
    Shape,
    Spec,
    Unknown,
    as_float,
    contiguous,
    has_zero,
    is_contiguous,
    real_dtype,
    rule,
    wrap_dim,
    wrap_dims,
)
from lampwork.fakes.strides import Scalar


def reduced(x: torch.Tensor, dims: tuple[int, ...], keepdim: bool) -> Shape:
    if keepdim:
        return tuple(1 if index in dims else size for index, size in enumerate(x.size()))
    return tuple(size for index, size in enumerate(x.size()) if index not in dims)


def _reduce(x: torch.Tensor, dim: object, keepdim: bool, dtype: torch.dtype) -> Spec:
    dims = wrap_dims(dim, x.dim())
    shape = reduced(x, dims, keepdim)
    if len(shape) < 2 or is_contiguous(x.size(), x.stride()):
        return Spec(shape, contiguous(shape), dtype)
    return Spec(shape, _iterated_reduction(x, dims, keepdim, shape), dtype)


def _iterated_reduction(x: torch.Tensor, dims: tuple[int, ...], keepdim: bool, shape: Shape) -> Shape:
    """Strides of a reduction's fresh result. Eager allocates it contiguous before TensorIterator sees it."""
    return contiguous(shape)


def _sum_dtype(x: torch.Tensor, dtype: torch.dtype | None) -> torch.dtype:
    if dtype is not None:
        return dtype
    return x.dtype if x.dtype.is_floating_point or x.dtype.is_complex else torch.int64


@rule("sum", "prod")
def sum_all(x: torch.Tensor, *, dtype: torch.dtype | None = None) -> Spec:
    return Spec((), (), _sum_dtype(x, dtype))


@rule("trace")
def trace(x: torch.Tensor) -> Spec:
    if x.dim() != 2:
        raise Unknown
    return Spec((), (), _sum_dtype(x, None))


@rule("renorm")
def renorm(x: torch.Tensor, p: Scalar, dim: int, maxnorm: Scalar) -> Spec:
    if x.dim() < 2 or not (x.dtype.is_floating_point or x.dtype.is_complex):
        raise Unknown
    wrap_dim(dim, x.dim())
    return Spec(tuple(x.size()), contiguous(x.size()), x.dtype)


@rule("sum.dim_IntList", "nansum", "prod.dim_int")
def sum_dims(
    x: torch.Tensor, dim: Sequence[int] | int | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Spec:
    return _reduce(x, dim, keepdim, _sum_dtype(x, dtype))


@rule("mean")
def mean_all(x: torch.Tensor, *, dtype: torch.dtype | None = None) -> Spec:
    dtype = dtype or x.dtype
    if not dtype.is_floating_point:
        raise Unknown
    return Spec((), (), dtype)


@rule("mean.dim")
def mean_dims(
    x: torch.Tensor, dim: Sequence[int] | None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Spec:
    dtype = dtype or x.dtype
    if not dtype.is_floating_point:
        raise Unknown
    return _reduce(x, dim, keepdim, dtype)


def _folds_nothing(x: torch.Tensor, dim: object) -> bool:
    """Whether a dimension that is reduced, or one whose size is known, is empty."""
    if has_zero(x.size()):
        return True
    return bool(x.dim()) and any(x.size(each) == 0 for each in wrap_dims(dim, x.dim()))


@rule("amax", "amin")
def extreme(x: torch.Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> Spec:
    if _folds_nothing(x, dim):
        raise Unknown
    return _reduce(x, dim, keepdim, x.dtype)


@rule("max", "min")
def extreme_all(x: torch.Tensor) -> Spec:
    if 0 in x.size():
        raise RuntimeError("max(): Expected reduction dim to be specified for input.numel() == 0.")
    return Spec((), (), x.dtype)


@rule("max.dim", "min.dim")
def extreme_dim(x: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[Spec, Spec]:
    if _folds_nothing(x, dim):
        raise Unknown
    one = _reduce(x, dim, keepdim, x.dtype)
    return one, one._replace(dtype=torch.int64)


@rule("argmax", "argmin")
def argument_of_extreme(x: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> Spec:
    if x.dtype is torch.bool or x.dtype.is_complex:
        raise RuntimeError("argmax(): does not support bool or complex input")
    if _folds_nothing(x, dim):
        raise Unknown
    return _reduce(x, dim, keepdim, torch.int64)


def _logical_dtype(x: torch.Tensor) -> torch.dtype:
    return torch.uint8 if x.dtype is torch.uint8 else torch.bool


@rule("any", "all")
def logical_all(x: torch.Tensor) -> Spec:
    return Spec((), (), _logical_dtype(x))


@rule("any.dim", "all.dim", "any.dims", "all.dims")
def logical(x: torch.Tensor, dim: int | Sequence[int] | None = None, keepdim: bool = False) -> Spec:
    if isinstance(dim, (list, tuple)) and not dim:
        raise Unknown
    return _reduce(x, dim, keepdim, _logical_dtype(x))


@rule("var.correction", "std.correction")
def variance(
    x: torch.Tensor, dim: Sequence[int] | None = None, *, correction: Scalar | None = None, keepdim: bool = False
) -> Spec:
    if not x.dtype.is_floating_point and not x.dtype.is_complex:
        raise RuntimeError("std and var only support floating point and complex dtypes")
    return _reduce(x, dim, keepdim, real_dtype(x.dtype))


@rule("var_mean.correction", "std_mean.correction")
def variance_and_mean(
    x: torch.Tensor, dim: Sequence[int] | None = None, *, correction: Scalar | None = None, keepdim: bool = False
) -> tuple[Spec, Spec]:
    if not x.dtype.is_floating_point:
        raise Unknown
    one = _reduce(x, dim, keepdim, x.dtype)
    return one, one


@rule("logsumexp")
def logsumexp(x: torch.Tensor, dim: Sequence[int], keepdim: bool = False) -> Spec:
    return _reduce(x, dim, keepdim, as_float(x.dtype))


@rule("linalg_vector_norm")
def vector_norm(
    x: torch.Tensor,
    ord: float = 2,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Spec:
    dims = (dim,) if isinstance(dim, int) else tuple(dim or range(x.dim()))
    lengths = [x.size(each) for each in dims] if x.dim() else []  # a number has a dimension to be named, and no length
    if not x.dtype.is_floating_point or (not 0 <= ord < math.inf and 0 in lengths):
        raise Unknown  # a maximum of nothing
    return _reduce(x, dim, keepdim, dtype or x.dtype)


@rule("cumsum", "cumprod")
def scan(x: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Spec:
    wrap_dim(dim, x.dim())
    return Spec(tuple(x.size()), contiguous(x.size()), _sum_dtype(x, dtype))


@rule("cummax", "cummin")
def extreme_scan(x: torch.Tensor, dim: int) -> tuple[Spec, Spec]:
    shape = tuple(x.size())
    return Spec(shape, contiguous(shape), x.dtype), Spec(shape, contiguous(shape), torch.int64)


@rule("_softmax", "_log_softmax")
def softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> Spec:
    if half_to_float or not x.dtype.is_floating_point:
        raise Unknown
    wrap_dim(dim, x.dim())
    return Spec(tuple(x.size()), contiguous(x.size()), x.dtype)


@rule("_safe_softmax")
def safe_softmax(x: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> Spec:
    if not x.dtype.is_floating_point:
        raise Unknown
    wrap_dim(dim, x.dim())
    return Spec(tuple(x.size()), contiguous(x.size()), dtype or x.dtype)
