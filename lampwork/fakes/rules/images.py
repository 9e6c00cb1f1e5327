"""Shape rules of operators on images and signals: pooling, windows, resampling and sampling at places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from lampwork.fakes.shapes import Spec, Unknown, contiguous, expect_sizes, in_format_of, rule

# Pooling ------------------------------------------------------------------------------------------


def _pair(value: Any, default: Any = None) -> tuple[int, int]:
    if value is None or (isinstance(value, (list, tuple)) and not value):
        return default
    if isinstance(value, int):
        return value, value
    return (value[0], value[0]) if len(value) == 1 else (value[0], value[1])


def _pooled(size: int, kernel: int, stride: int, pad: int, dilation: int, ceil_mode: bool) -> int:
    span = size + 2 * pad - dilation * (kernel - 1) - 1
    if not ceil_mode:
        return span // stride + 1
    result = (span + stride - 1) // stride + 1
    if (result - 1) * stride >= size + pad:
        result -= 1
    return result


def pool_shape(
    x: torch.Tensor, kernel: object, stride: Sequence[int], pad: object, dilation: object, ceil_mode: bool
) -> tuple[int, ...]:
    """Sizes of the result of a pool over windows of an image."""
    if x.dim() != 4 or 0 in x.size():
        raise Unknown
    kernel = _pair(kernel)
    stride, pad, dilation = _pair(stride, kernel), _pair(pad), _pair(dilation)
    if any(each < 1 for each in (*kernel, *stride, *dilation)) or any(
        not 0 <= p <= k // 2 for p, k in zip(pad, kernel)
    ):
        raise Unknown
    sizes = tuple(
        _pooled(x.size()[2 + axis], kernel[axis], stride[axis], pad[axis], dilation[axis], ceil_mode) for axis in (0, 1)
    )
    if any(size < 1 for size in sizes):
        raise Unknown
    return (x.size()[0], x.size()[1], *sizes)


@rule("max_pool2d_with_indices")
def max_pool2d(x: torch.Tensor, kernel_size: Sequence[int], stride: Sequence[int] = (),
               padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1,
               ceil_mode: bool = False) -> tuple[Spec, Spec]:  # fmt: skip
    shape = pool_shape(x, kernel_size, stride, padding, dilation, ceil_mode)
    strides = in_format_of(x, shape)
    return Spec(shape, strides, x.dtype), Spec(shape, strides, torch.int64)


@rule("avg_pool2d")
def avg_pool2d(x: torch.Tensor, kernel_size: Sequence[int], stride: Sequence[int] = (),
               padding: int | Sequence[int] = 0, ceil_mode: bool = False, count_include_pad: bool = True,
               divisor_override: int | None = None) -> Spec:  # fmt: skip
    if divisor_override == 0:
        raise Unknown
    shape = pool_shape(x, kernel_size, stride, padding, 1, ceil_mode)
    return Spec(shape, in_format_of(x, shape), x.dtype)


@rule("_adaptive_avg_pool2d")
def adaptive_avg_pool2d(x: torch.Tensor, output_size: Sequence[int]) -> Spec:
    if x.dim() not in (3, 4):
        raise Unknown
    shape = (*x.size()[:-2], *output_size)
    return Spec(shape, in_format_of(x, shape), x.dtype)


# Windows ------------------------------------------------------------------------------------------


@rule("im2col")
def im2col(x: torch.Tensor, kernel_size: Sequence[int], dilation: Sequence[int], padding: Sequence[int],
           stride: Sequence[int]) -> Spec:  # fmt: skip
    if x.dim() not in (3, 4):
        raise Unknown
    *batch, channels, height, width = x.size()
    numbers = [_pair(each) for each in (kernel_size, dilation, padding, stride)]
    shape = (*batch, channels * math.prod(numbers[0]), _places((height, width), *numbers))
    return Spec(shape, contiguous(shape), x.dtype)


@rule("col2im")
def col2im(x: torch.Tensor, output_size: Sequence[int], kernel_size: Sequence[int], dilation: Sequence[int],
           padding: Sequence[int], stride: Sequence[int]) -> Spec:  # fmt: skip
    if x.dim() not in (2, 3):
        raise Unknown
    kernel, *numbers = (_pair(each) for each in (kernel_size, dilation, padding, stride))
    *batch, columns, places = x.size()
    if columns % math.prod(kernel) or places != _places(output_size, kernel, *numbers):
        raise Unknown
    shape = (*batch, columns // math.prod(kernel), *output_size)
    return Spec(shape, contiguous(shape), x.dtype)


def _places(size: Sequence[int], kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int],
            stride: Sequence[int]) -> int:  # fmt: skip
    """How many windows there are."""
    if any(each < 1 for each in (*kernel, *dilation, *stride)) or any(each < 0 for each in padding):
        raise Unknown
    counts = [_pooled(size[axis], kernel[axis], stride[axis], padding[axis], dilation[axis], False) for axis in (0, 1)]
    if any(each < 1 for each in counts):
        raise Unknown
    return math.prod(counts)


# Resampling ---------------------------------------------------------------------------------------


@rule("upsample_linear1d", "upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d",
      "_upsample_nearest_exact2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa")  # fmt: skip
def upsample(x: torch.Tensor, output_size: Sequence[int], *args: object, **kwargs: object) -> Spec:
    if x.dim() != len(output_size) + 2 or any(type(each) is int and each < 1 for each in (*x.size()[2:], *output_size)):
        raise Unknown
    if x.dim() != 4 and not x.is_contiguous():  # volumes have channels last, too
        raise Unknown
    shape = (*x.size()[:2], *output_size)
    return Spec(shape, in_format_of(x, shape), x.dtype)


@rule("grid_sampler_2d", "grid_sampler_3d")
def sample_at(x: torch.Tensor, grid: torch.Tensor, *args: object) -> Spec:
    if x.dim() != grid.dim() or x.dtype != grid.dtype or any(type(each) is int and each < 1 for each in x.size()[2:]):
        raise Unknown
    expect_sizes("the places to sample at", (grid.size()[0], grid.size()[-1]), (x.size()[0], x.dim() - 2))
    shape = (*x.size()[:2], *grid.size()[1:-1])
    return Spec(shape, contiguous(shape), x.dtype)


@rule("affine_grid_generator")
def affine_grid(theta: torch.Tensor, size: Sequence[int], align_corners: bool) -> Spec:
    dims = len(size) - 2
    if theta.dim() != 3 or dims not in (2, 3):
        raise Unknown
    expect_sizes("the maps of a grid", theta.size(), (size[0], dims, dims + 1))
    shape = (size[0], *size[2:], dims)
    return Spec(shape, contiguous(shape), theta.dtype)
