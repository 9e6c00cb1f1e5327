"""Shape rules of operators that only derivatives are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from lampwork import _torch
from lampwork.fakes.fake import Fake
from lampwork.fakes.rules.images import pool_shape
from lampwork.fakes.rules.linear import convolution as forward
from lampwork.fakes.rules.pointwise import elementwise
from lampwork.fakes.shapes import (
    Spec,
    Unknown,
    channels_last,
    contiguous,
    differ,
    exceeds_one,
    expect_sizes,
    in_format_of,
    is_contiguous,
    preserved,
    promoted,
    rule,
    same_sizes,
    strides_suggest_channels_last,
    suggests_channels_last,
    surely_same,
    wrap_dim,
)
from lampwork.fakes.strides import Scalar
from lampwork.fakes.views import RULES as VIEWS
from lampwork.fakes.views import aten


@rule("sigmoid_backward", "tanh_backward", "gelu_backward", "threshold_backward", "hardswish_backward",
      "hardsigmoid_backward", "hardtanh_backward", "softplus_backward",
      "hardshrink_backward", "softshrink_backward", "logit_backward", "mish_backward")  # fmt: skip
def activation(gradient: torch.Tensor, x: torch.Tensor, *args: object, **kwargs: object) -> Spec:
    dtype = promoted((gradient, x))
    if not dtype.is_floating_point:
        raise Unknown
    return elementwise((gradient, x), dtype)


@rule("leaky_relu_backward")
def leaky_relu(gradient: torch.Tensor, x: torch.Tensor, *args: object) -> Spec:
    return activation(x, gradient)


@rule("elu_backward")
def elu(
    gradient: torch.Tensor, alpha: Scalar, scale: Scalar, input_scale: Scalar, is_result: bool, x: torch.Tensor
) -> Spec:
    return activation(gradient, x)


@rule("native_dropout_backward")
def dropout(gradient: torch.Tensor, mask: torch.Tensor, scale: float) -> Spec:
    if not gradient.dtype.is_floating_point:
        raise Unknown
    return elementwise((gradient, mask), gradient.dtype)


@rule("mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward")
def loss(gradient: torch.Tensor, x: torch.Tensor, target: torch.Tensor, *args: object, **kwargs: object) -> Spec:
    if x.dtype != target.dtype or not same_sizes(x.size(), target.size()):
        raise Unknown
    return _dense(x)


@rule("binary_cross_entropy_backward")
def binary_cross_entropy(
    gradient: torch.Tensor, x: torch.Tensor, target: torch.Tensor, *args: object, **kwargs: object
) -> Spec:
    return loss(gradient, x, target)._replace(strides=preserved(x))


@rule("soft_margin_loss_backward")
def soft_margin_loss(gradient: torch.Tensor, x: torch.Tensor, target: torch.Tensor, reduction: int) -> Spec:
    if target.dtype is torch.bool:
        raise RuntimeError("Negation, the `-` operator, on a bool tensor is not supported.")
    if not x.is_contiguous() or not target.is_contiguous():
        raise Unknown
    return loss(gradient, x, target)


@rule("nll_loss_backward")
def nll_loss(gradient: torch.Tensor, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, reduction: int,
             *args: object) -> Spec:  # fmt: skip
    _expect_of_nll(gradient, x, target, weight, reduction)
    return _dense(x)


def _expect_of_nll(
    gradient: torch.Tensor, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, reduction: int
) -> None:
    classes, points = (x.size()[1], (x.size()[0], *x.size()[2:])) if x.dim() > 1 else (x.size()[0], target.size())
    expect_sizes("the target of a loss", target.size(), points)
    if weight is not None:
        expect_sizes("the weight of a loss", weight.size(), (classes,))
    if reduction == 0 and gradient.dim():
        expect_sizes("the gradient of a loss", gradient.size(), points)


@rule("nll_loss2d_backward")
def nll_loss2d(gradient: torch.Tensor, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None,
               reduction: int, *args: object) -> Spec:  # fmt: skip
    """Eager lays the result out as `x` and refuses what is not in a row then, images with channels last among them."""
    shape, strides = tuple(x.size()), preserved(x)
    if not is_contiguous(shape, strides):
        raise RuntimeError("grad_input must be contiguous")
    _expect_of_nll(gradient, x, target, weight, reduction)
    return Spec(shape, strides, x.dtype)


@rule("multi_margin_loss_backward", "multilabel_margin_loss_backward", "fractional_max_pool3d_backward")
def dense(gradient: torch.Tensor, x: torch.Tensor, *args: object) -> Spec:
    return _dense(x)


@rule("_softmax_backward_data", "_log_softmax_backward_data")
def softmax(gradient: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: torch.dtype) -> Spec:
    shape = tuple(gradient.size())
    expect_sizes("the result of a softmax", output.size(), shape)
    wrap_dim(dim, len(shape))
    return Spec(shape, contiguous(shape), input_dtype)


def _dense(x: torch.Tensor) -> Spec:
    shape = tuple(x.size())
    return Spec(shape, contiguous(shape), x.dtype)


@rule("native_layer_norm_backward")
def layer_norm(gradient: torch.Tensor, x: torch.Tensor, normalized_shape: Any, mean: torch.Tensor | None,
               rstd: torch.Tensor | None, weight: Any, bias: Any,
               output_mask: Sequence[bool]) -> tuple[Spec | None, ...]:  # fmt: skip
    expect_sizes("the gradient of a layer norm", gradient.size(), x.size())
    expect_sizes("what a layer norm normalises", normalized_shape, x.size()[x.dim() - len(normalized_shape) :])
    rows = (*x.size()[: x.dim() - len(normalized_shape)], *(1 for _ in normalized_shape))
    for each, sizes in ((mean, rows), (rstd, rows), (weight, normalized_shape), (bias, normalized_shape)):
        if each is not None:
            expect_sizes("a parameter of a layer norm", each.size(), sizes)
    return tuple(
        None if each is None or not wanted else _dense(each) for each, wanted in zip((x, weight, bias), output_mask)
    )


@rule("_fused_rms_norm_backward")
def rms_norm(gradient: torch.Tensor, x: torch.Tensor, normalized_shape: object, rstd: object, weight: torch.Tensor,
             output_mask: Sequence[bool]) -> tuple[Spec | None, ...]:  # fmt: skip
    """As the kernel for a GPU; elsewhere the operator is made of others."""
    if not x.is_cuda or weight is None and output_mask[1]:
        raise Unknown
    expect_sizes("the gradient of an RMS norm", gradient.size(), x.size())
    return tuple(_dense(each) if wanted else None for each, wanted in zip((x, weight), output_mask))


@rule("native_group_norm_backward")
def group_norm(gradient: torch.Tensor, x: torch.Tensor, mean: torch.Tensor | None, rstd: torch.Tensor | None,
               weight: torch.Tensor | None, n: int, c: int, hw: int, group: int,
               output_mask: Sequence[bool]) -> tuple[Spec | None, ...]:  # fmt: skip
    if weight is None and any(output_mask[1:]):
        raise Unknown
    shape = tuple(x.size())
    expect_sizes("the gradient of a group norm", gradient.size(), shape)
    expect_sizes("the input of a group norm", shape[:2], (n, c))
    expect_sizes("a channel of the input of a group norm", (math.prod(shape[2:]),), (hw,))
    for each, sizes in ((mean, (n, group)), (rstd, (n, group)), (weight, (c,))):
        if each is not None:
            expect_sizes("a parameter of a group norm", each.size(), sizes)
    channels = Spec((c,), (1,), weight.dtype if weight is not None else x.dtype)
    strides = in_format_of(x, shape) if x.is_cpu else contiguous(shape)
    return tuple(
        spec if wanted else None
        for spec, wanted in zip((Spec(shape, strides, x.dtype), channels, channels), output_mask)
    )


@rule("native_batch_norm_backward")
def batch_norm(gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor | None, running_mean: torch.Tensor | None,
               running_var: torch.Tensor | None, mean: torch.Tensor | None, rstd: torch.Tensor | None, train: bool,
               eps: float, output_mask: Sequence[bool]) -> tuple[Spec | None, ...]:  # fmt: skip
    shape = tuple(x.size())
    expect_sizes("the gradient of a batch norm", gradient.size(), shape)
    read = (running_mean, running_var) if not train else (mean, rstd)
    for each in (weight, *read):
        if each is not None:
            expect_sizes("a parameter of a batch norm", each.size(), shape[1:2])
    channels = Spec((shape[1],), (1,), x.dtype if weight is None else weight.dtype)
    if x.is_cpu and x.dtype.itemsize >= 4:
        whole = Spec(shape, in_format_of(x, shape), x.dtype)
    elif x.is_cuda and all(map(exceeds_one, shape)):
        strides = in_format_of(x, shape)
        if suggests_channels_last(x) and not (
            surely_same(x.stride(), strides) and surely_same(gradient.stride(), strides)
        ):
            raise Unknown  # cuDNN keeps the order of the channels, kernels of ATen do not
        whole = Spec(shape, strides, x.dtype)
    elif surely_same(gradient.stride(), x.stride()) and all(map(exceeds_one, shape)):  # computed by kernels of ours
        whole = elementwise((gradient, x), x.dtype)
    else:
        raise Unknown
    found = (whole, channels, channels)
    return tuple(spec if wanted else None for spec, wanted in zip(found, output_mask))


@rule("cudnn_batch_norm_backward")
def cudnn_batch_norm(x: torch.Tensor, gradient: torch.Tensor, weight: torch.Tensor, running_mean: torch.Tensor | None,
                     running_var: torch.Tensor | None, mean: torch.Tensor | None, rstd: torch.Tensor | None,
                     eps: float, reserve: torch.Tensor) -> tuple[Spec, ...]:  # fmt: skip
    shape = tuple(x.size())
    expect_sizes("the gradient of a batch norm", gradient.size(), shape)
    channels = Spec((shape[1],), (1,), weight.dtype)
    return Spec(shape, in_format_of(x, shape), x.dtype), channels, channels


@rule("convolution_backward")
def convolution(gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, bias_sizes: Any, stride: Any,
                padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: int,
                output_mask: Sequence[bool]) -> tuple[Spec | None, ...]:  # fmt: skip
    """On the CPU, and by cuDNN; the meta kernel, which imports sympy, takes 0.4 s for the first and 100 us for each."""
    geometry = (stride, padding, dilation, transposed, output_padding, groups)
    if x.is_cuda and x.dim() in (3, 4, 5) and gradient.dtype == x.dtype == weight.dtype:
        if not _torch.convolution_adds_bias_last(x, weight, *geometry):
            raise Unknown
        strides = _strides_by_cudnn(gradient, x, weight, output_mask[1])
        specs = [Spec(tuple(each.size()), found, x.dtype) for each, found in zip((x, weight), strides)]
        specs.append(Spec((gradient.size()[1],), (1,), x.dtype))
        return tuple(spec if wanted else None for spec, wanted in zip(specs, output_mask))
    if not x.is_cpu or gradient.dtype != x.dtype:
        raise Unknown
    in_order = x.dim() in (4, 5) and (suggests_channels_last(x) or suggests_channels_last(weight))
    path = _torch.convolution_path(x, weight, *geometry) if in_order else ""
    own = path in ("Slow3d", "SlowDilated3d", "SlowTranspose3d")  # ATen's, which know no order of channels
    if in_order and not own and path not in ("Mkldnn", "Slow2d"):
        raise Unknown
    in_order = in_order and not own
    result = forward(x, weight, None, stride, padding, dilation, transposed, output_padding, groups)
    if not same_sizes(gradient.size(), result.shape):
        raise Unknown
    lay = channels_last if in_order else contiguous
    channels = (result.shape[1],)
    specs = [Spec(tuple(each.size()), lay(tuple(each.size())), x.dtype) for each in (x, weight)]
    if path == "Slow2d" and surely_same(weight.stride(), contiguous(specs[1].shape)) and _is_either(weight):
        specs[1] = Spec(specs[1].shape, tuple(weight.stride()), x.dtype)  # laid out like the weight, which is as wanted
    specs.append(Spec(channels, (1,), x.dtype))
    return tuple(spec if wanted else None for spec, wanted in zip(specs, output_mask))


def _strides_by_cudnn(gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, weighs: bool) -> tuple:
    """Strides of the gradients of `x` and of `weight`. Each is channels last where one of the two that it is computed
    from is, after ATen has made the input (if `weighs`: the weight's gradient is wanted) and the gradient alike. No
    double is channels last; images of one dimension are rows of images of two."""
    allowed = x.dtype != torch.float64
    rank = x.dim()

    def last(each: tuple) -> bool:
        return allowed and strides_suggest_channels_last(*each)

    def layout(tensor: torch.Tensor, in_order: bool = False) -> tuple:
        shape, strides = tuple(tensor.size()), tuple(tensor.stride())
        if rank > 3:
            return shape, strides
        if in_order and not is_contiguous(shape, strides):
            strides = contiguous(shape)
        return (*shape[:2], 1, shape[2]), (*strides[:2], shape[2] * strides[2], strides[2])

    taken, kernel, arrived = layout(x, True), layout(weight), layout(gradient)
    if weighs:
        dense = (channels_last if last(taken) or last(kernel) else contiguous)(taken[0])
        if any(exceeds_one(size) and differ(*pair) for size, *pair in zip(taken[0], taken[1], dense)):
            taken = taken[0], dense
    if strides_suggest_channels_last(*arrived) != strides_suggest_channels_last(*taken):
        arrived = arrived[0], (contiguous if strides_suggest_channels_last(*arrived) else channels_last)(arrived[0])
    found = []
    for shape, others in ((taken[0], (arrived, kernel)), (kernel[0], (taken, arrived))):
        strides = (channels_last if any(map(last, others)) else contiguous)(shape)
        found.append(strides if rank > 3 else (*strides[:2], strides[3]))
    return tuple(found)


def _is_either(weight: torch.Tensor) -> bool:
    """Whether the weight's elements lie in the same order with channels first and last."""
    size = weight.size()
    return not exceeds_one(size[1]) or not any(map(exceeds_one, size[2:]))


@rule("embedding_dense_backward")
def embedding(gradient: torch.Tensor, indices: torch.Tensor, rows: int, padding_idx: int, scaled: bool) -> Spec:
    width = gradient.size()[-1]
    return Spec((rows, width), contiguous((rows, width)), gradient.dtype)


def _of_view(view: Any) -> Any:
    def view_backward(gradient: torch.Tensor, input_sizes: Sequence[int], *place: Any) -> Spec:
        shape = tuple(input_sizes)
        seen = _torch.tensor_without_memory(Fake, shape, contiguous(shape), gradient.dtype, gradient.device)
        expect_sizes("the gradient of a view", gradient.size(), VIEWS[view](seen, *place).shape)
        return Spec(shape, contiguous(shape), gradient.dtype)

    return view_backward


rule("slice_backward")(_of_view(aten.slice.Tensor))
rule("select_backward")(_of_view(aten.select.int))
rule("diagonal_backward")(_of_view(aten.diagonal.default))
rule("unfold_backward")(_of_view(aten.unfold.default))


@rule("max_pool2d_with_indices_backward")
def max_pool(gradient: torch.Tensor, x: torch.Tensor, kernel_size: Sequence[int], stride: Sequence[int],
             padding: Sequence[int], dilation: Sequence[int], ceil_mode: bool,
             indices: torch.Tensor) -> Spec:  # fmt: skip
    if x.dim() != 4:
        raise Unknown
    shape = pool_shape(x, kernel_size, stride, padding, dilation, ceil_mode)
    expect_sizes("the indices of a pool", indices.size(), shape)
    return _of_pool(gradient, x, shape)


@rule("avg_pool2d_backward")
def avg_pool(gradient: torch.Tensor, x: torch.Tensor, kernel_size: Sequence[int], stride: Sequence[int],
             padding: Sequence[int], ceil_mode: bool, *args: object) -> Spec:  # fmt: skip
    if x.dim() != 4:
        raise Unknown
    return _of_pool(gradient, x, pool_shape(x, kernel_size, stride, padding, 1, ceil_mode))


def _of_pool(gradient: torch.Tensor, x: torch.Tensor, windows: Sequence[int]) -> Spec:
    expect_sizes("the gradient of a pool", gradient.size(), windows)
    shape = tuple(x.size())
    return Spec(shape, in_format_of(x, shape), x.dtype)


@rule("_adaptive_avg_pool2d_backward")
def adaptive_pool(gradient: torch.Tensor, x: torch.Tensor) -> Spec:
    shape = tuple(x.size())
    expect_sizes("the gradient of a pool", gradient.size()[:-2], shape[:-2])
    return Spec(shape, in_format_of(x, shape), x.dtype)


@rule("upsample_nearest2d_backward", "upsample_bilinear2d_backward",
      "_upsample_nearest_exact2d_backward")  # fmt: skip
def upsample(
    gradient: torch.Tensor, output_size: Sequence[int], input_size: Sequence[int], *args: object, **kwargs: object
) -> Spec:
    if suggests_channels_last(gradient) and not gradient.is_cpu:
        raise Unknown
    shape = tuple(input_size)
    expect_sizes("the gradient of resampling", gradient.size(), (*shape[:2], *output_size))
    return Spec(shape, in_format_of(gradient, shape), gradient.dtype)


@rule("upsample_linear1d_backward", "upsample_nearest1d_backward", "upsample_nearest3d_backward",
      "upsample_bicubic2d_backward", "upsample_trilinear3d_backward", "_upsample_nearest_exact1d_backward",
      "_upsample_nearest_exact3d_backward", "_upsample_bilinear2d_aa_backward",
      "_upsample_bicubic2d_aa_backward")  # fmt: skip
def upsample_contiguous(
    gradient: torch.Tensor, output_size: Sequence[int], input_size: Sequence[int], *args: object, **kwargs: object
) -> Spec:
    if not gradient.is_contiguous():
        raise Unknown
    return upsample(gradient, output_size, input_size)


@rule("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def sample_at(gradient: torch.Tensor, x: torch.Tensor, grid: torch.Tensor, interpolation_mode: int, padding_mode: int,
              align_corners: bool, output_mask: Sequence[bool]) -> tuple[Spec | None, Spec]:  # fmt: skip
    expect_sizes("the gradient of sampling", gradient.size(), (*x.size()[:2], *grid.size()[1:-1]))
    places = Spec(tuple(grid.size()), contiguous(grid.size()), grid.dtype)
    return Spec(tuple(x.size()), contiguous(x.size()), x.dtype) if output_mask[0] else None, places


@rule("glu_backward")
def glu(gradient: torch.Tensor, x: torch.Tensor, dim: int) -> Spec:
    shape = tuple(x.size())
    dim = wrap_dim(dim, len(shape))
    expect_sizes("the gradient of a gate", gradient.size(), (*shape[:dim], shape[dim] // 2, *shape[dim + 1 :]))
    return Spec(shape, contiguous(shape), x.dtype)


@rule("_prelu_kernel_backward")
def prelu(gradient: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> tuple[Spec, Spec]:
    made = elementwise((x, weight, gradient), x.dtype)
    return made, made


@rule("_ctc_loss_backward", "_ctc_loss_backward.Tensor")
def ctc_loss(gradient: torch.Tensor, log_probs: torch.Tensor, *args: object) -> Spec:
    return _dense(log_probs)
