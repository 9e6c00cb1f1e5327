"""Shape rules of matrix products, convolutions and attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from lampwork import _torch
from lampwork.fakes.shapes import (
    Spec,
    Unknown,
    channels_last,
    check_expands,
    contiguous,
    expect_sizes,
    iterated_of,
    preserved,
    rule,
    strides_suggest_channels_last,
    suggests_channels_last,
)
from lampwork.fakes.strides import Scalar


def _same_dtype(*tensors: torch.Tensor) -> torch.dtype:
    dtype = tensors[0].dtype
    if any(each.dtype != dtype for each in tensors):
        raise Unknown
    return dtype


@rule("mm")
def mm(a: torch.Tensor, b: torch.Tensor) -> Spec:
    if a.dim() != 2 or b.dim() != 2:
        raise Unknown
    if a.size()[1] != b.size()[0]:
        sizes = f"{a.size()[0]}x{a.size()[1]} and {b.size()[0]}x{b.size()[1]}"
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({sizes})")
    shape = (a.size()[0], b.size()[1])
    return Spec(shape, contiguous(shape), _same_dtype(a, b))


@rule("addmm")
def addmm(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> Spec:
    _same_dtype(bias, a, b)
    result = mm(a, b)
    sizes = tuple(bias.size())
    if len(sizes) > 2:
        raise Unknown
    for size, expected in zip(reversed(sizes), reversed(result.shape)):
        if size not in (1, expected):
            raise Unknown
    return result


@rule("bmm")
def bmm(a: torch.Tensor, b: torch.Tensor) -> Spec:
    if a.dim() != 3 or b.dim() != 3 or a.size()[0] != b.size()[0] or a.size()[2] != b.size()[1]:
        raise Unknown
    shape = (a.size()[0], a.size()[1], b.size()[2])
    return Spec(shape, contiguous(shape), _same_dtype(a, b))


@rule("mv")
def mv(a: torch.Tensor, b: torch.Tensor) -> Spec:
    if a.dim() != 2 or b.dim() != 1 or a.size()[1] != b.size()[0]:
        raise Unknown
    return Spec((a.size()[0],), (1,), _same_dtype(a, b))


def _with_addend(product: Callable[[torch.Tensor, torch.Tensor], Spec]) -> Callable[..., Spec]:
    """The rule of a product that is added to a tensor, which is expanded to it."""

    def added(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> Spec:
        _same_dtype(x, a, b)
        result = product(a, b)
        check_expands(x.size(), result.shape)
        return result

    return added


rule("addmv")(_with_addend(mv))
rule("baddbmm")(_with_addend(bmm))


@rule("dot", "vdot")
def dot(a: torch.Tensor, b: torch.Tensor) -> Spec:
    if a.dim() != 1 or b.dim() != 1 or a.size()[0] != b.size()[0]:
        raise Unknown
    return Spec((), (), _same_dtype(a, b))


@rule("addr")
def addr(x: torch.Tensor, vec1: torch.Tensor, vec2: torch.Tensor, *, beta: Scalar = 1, alpha: Scalar = 1) -> Spec:
    """All three take part in the result's type, a scalar too, which is expanded first."""
    if vec1.dim() != 1 or vec2.dim() != 1:
        raise Unknown
    shape = (vec1.size()[0], vec2.size()[0])
    check_expands(x.size(), shape)
    sizes = (tuple(x.size()), (shape[0], 1), (shape[1],))
    strides = iterated_of(sizes, (x.stride(), (vec1.stride()[0], 1), vec2.stride()), shape, False)
    return Spec(shape, strides, torch.promote_types(x.dtype, torch.promote_types(vec1.dtype, vec2.dtype)))


@rule("convolution")
def convolution(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: Sequence[int],
                padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int],
                groups: int) -> Spec:  # fmt: skip
    dims = weight.dim() - 2
    if x.dim() != weight.dim() or dims < 1 or 0 in x.size() or 0 in weight.size():
        raise Unknown
    if x.dtype != weight.dtype:
        raise RuntimeError(f"Input type ({x.dtype}) and weight type ({weight.dtype}) should be the same")
    if groups > 1 and weight.size()[0] % groups:
        raise RuntimeError(f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0")
    dtype = _same_dtype(x, weight)

    def spread(value: Any) -> list[int]:
        return list(value) * dims if len(value) == 1 else list(value)

    stride, padding, dilation, output_padding = (
        spread(stride),
        spread(padding),
        spread(dilation),
        spread(output_padding),
    )
    if any(each < 0 for each in padding):
        raise RuntimeError("negative padding is not supported")
    if any(each < 0 for each in output_padding):
        raise RuntimeError("negative output_padding is not supported")
    if any(each < 1 for each in stride):
        raise RuntimeError("non-positive stride is not supported")
    if any(each < 0 for each in dilation):
        raise RuntimeError("dilation should be greater than zero")
    if any(each == 0 for each in dilation):
        raise RuntimeError(f"dilation should be greater than zero, but got {list(map(int, dilation))}")
    kernel = weight.size()[2:]
    shape = [x.size()[0], weight.size()[1] * groups if transposed else weight.size()[0]]
    expect_sizes(
        "the input of a convolution", x.size()[1:2], weight.size()[:1] if transposed else (weight.size()[1] * groups,)
    )
    for axis in range(dims):
        size, reach = x.size()[2 + axis], dilation[axis] * (kernel[axis] - 1)
        if transposed:
            shape.append((size - 1) * stride[axis] - 2 * padding[axis] + reach + output_padding[axis] + 1)
        else:
            shape.append((size + 2 * padding[axis] - reach - 1) // stride[axis] + 1)
    if any(size < 1 for size in shape[2:]):
        raise RuntimeError(f"the result of a convolution has sizes {shape}: it is too small")
    if bias is not None:
        expect_sizes("the bias of a convolution", bias.size(), shape[1:2])
    if x.is_cpu and len(shape) == 3:
        # Run as two dimensions, the first of them 1, of an input that is made contiguous before.
        (outer, inner, length), (a, b, c) = weight.size(), weight.stride()
        in_order = strides_suggest_channels_last((outer, inner, 1, length), (a, b, length * c, c))
        flat = (shape[0], shape[1], 1, shape[2])
        strides = channels_last(flat) if in_order else contiguous(flat)
        return Spec(tuple(shape), (*strides[:2], strides[3]), dtype)
    if x.is_cpu:
        in_order = suggests_channels_last(x) or suggests_channels_last(weight)
        if in_order and len(shape) == 5:  # ATen's own algorithms know no order of channels in three dimensions
            geometry = (stride, padding, dilation, transposed, output_padding, groups)
            in_order = _torch.convolution_path(x, weight, *geometry).startswith("Mkldnn")
    else:  # each of CUDA's convolutions has its own idea: the one is asked that eager would run
        geometry = (stride, padding, dilation, transposed, output_padding, groups)
        in_order = _torch.convolution_is_channels_last(x, weight, bias, *geometry)
    strides = channels_last(shape) if in_order and len(shape) in (4, 5) else contiguous(shape)
    return Spec(tuple(shape), strides, dtype)


@rule("_scaled_dot_product_flash_attention_for_cpu")
def flash_attention_cpu(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, dropout_p: float = 0.0,
                        is_causal: bool = False, *, attn_mask: torch.Tensor | None = None,
                        scale: float | None = None) -> tuple[Spec, Spec]:  # fmt: skip
    """Results: output [B, H, S, D] in the layout of `empty_like(query)`; logsumexp [B, H, S] in memory as [B, S, H]."""
    batch, heads, length, _ = query.size()
    shape = (batch, heads, length, value.size()[3])
    strides = preserved(query) if shape == tuple(query.size()) else contiguous(shape)
    output = Spec(shape, strides, _same_dtype(query, key, value))
    dtype = torch.float64 if query.dtype is torch.float64 else torch.float32
    return output, Spec((batch, heads, length), (length * heads, 1, heads), dtype)


@rule("_native_multi_head_attention")
def attention_layer(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, embed_dim: int, num_head: int,
                    *weights: Any, need_weights: bool = True,
                    **options: object) -> tuple[Spec | None, ...]:  # fmt: skip
    """Without attention's weights there is one result (the meta kernel says an empty tensor)."""
    need_weights = weights[5] if len(weights) > 5 else need_weights
    if need_weights or query.dim() != 3:
        raise Unknown
    shape = (*query.size()[:2], embed_dim)
    return Spec(shape, contiguous(shape), query.dtype), None


# CUDA's attention. Without gradients nobody reads what follows the output; its metadata need not be exact.


def _attention_output(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> Spec:
    """[B, H, S, value's D], laid out as the query is."""
    shape = (*query.size()[:3], value.size()[3])
    if query.dim() != 4 or value.dim() != 4:
        raise Unknown
    if shape == tuple(query.size()):
        strides = preserved(query)
    else:
        steps, strides_of, step = query.stride(), [0] * 4, 1
        for dim in sorted(range(4), key=lambda dim: (steps[dim], -dim)):  # innermost first
            strides_of[dim] = step
            step *= shape[dim]
        strides = tuple(strides_of)
    return Spec(shape, strides, _same_dtype(query, key, value))


#: The state of random draws that dropout's derivative reads.
_SEEDS = Spec((), (), torch.int64), Spec((), (), torch.int64)


@rule("_scaled_dot_product_flash_attention")
def flash_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, dropout_p: float = 0.0,
                    is_causal: bool = False, return_debug_mask: bool = False, *,
                    scale: float | None = None) -> tuple[Spec | int | None, ...]:  # fmt: skip
    if return_debug_mask:
        raise Unknown
    batch, heads, length, _ = query.size()
    sums = Spec((batch, heads, length), contiguous((batch, heads, length)), torch.float32)
    debug = Spec((0,), (1,), query.dtype)
    output = _attention_output(query, key, value)
    state = Spec((2,), (1,), torch.uint64), Spec((), (), torch.uint64)  # the second is not used
    return output, sums, None, None, length, key.size()[2], *state, debug


@rule("_scaled_dot_product_cudnn_attention")
def cudnn_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor | None,
                    with_sums: bool, dropout_p: float = 0.0, is_causal: bool = False, return_debug_mask: bool = False,
                    *, scale: float | None = None) -> tuple[Spec | int | None, ...]:  # fmt: skip
    batch, heads, length, _ = query.size()
    sums = Spec((batch, heads, length, 1), (heads * length, length, 1, 1), torch.float32) if with_sums else None
    output = _attention_output(query, key, value)
    return output, sums, None, None, length, key.size()[2], *_SEEDS, None


@rule("_scaled_dot_product_efficient_attention")
def efficient_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor | None,
                        with_sums: bool, dropout_p: float = 0.0, is_causal: bool = False, *,
                        scale: float | None = None) -> tuple[Spec, ...]:  # fmt: skip
    """The output lies in memory as [B, S, H, D]."""
    if query.dim() != 4 or value.dim() != 4:
        raise Unknown
    batch, heads, length, _ = query.size()
    width = value.size()[3]
    strides = (length * heads * width, width, heads * width, 1)
    rows = -(-length // 32) * 32 if with_sums else 0
    sums = Spec((batch, heads, rows), contiguous((batch, heads, rows)), torch.float32)
    return Spec((batch, heads, length, width), strides, _same_dtype(query, key, value)), sums, *_SEEDS


# The vendor library's fused operators ---------------------------------------------------------------------------------


@rule("mkldnn::_linear_pointwise")
def vendor_linear(x: torch.Tensor, weight: torch.Tensor, *rest: object) -> Spec:
    """Weight [N, K] (packed or not), x [..., K]."""
    shape = (*x.size()[:-1], weight.size()[0])
    return Spec(shape, contiguous(shape), x.dtype)


@rule("mkldnn::_linear_pointwise.binary")
def vendor_linear_binary(x: torch.Tensor, other: torch.Tensor, weight: torch.Tensor, *rest: object) -> Spec:
    return vendor_linear(x, weight)


@rule("mkldnn::_convolution_pointwise")
def vendor_convolution(
    x: torch.Tensor, weight: torch.Tensor, bias: Any, padding: Any, stride: Any, dilation: Any, groups: int, *rest: Any
) -> Spec:
    """Weight [O, I / groups, ...] (packed or not). Packed weights make the result channels-last."""
    plain = convolution(x, weight, bias, stride, padding, dilation, False, [0] * len(padding), groups)
    return plain._replace(strides=channels_last(plain.shape))


@rule("mkldnn::_convolution_pointwise.binary")
def vendor_convolution_binary(x: torch.Tensor, other: torch.Tensor, weight: torch.Tensor, *rest: Any) -> Spec:
    return vendor_convolution(x, weight, *rest)
