"""Shape rules of normalisation layers and losses."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    in_format_of,
    is_channels_last,
    is_contiguous,
    preserved,
    rule,
    same_sizes,
    surely_same,
)
from lampwork.fakes.strides import Scalar


def _statistics_dtype(x: torch.Tensor, weight: Any, bias: Any) -> torch.dtype:
    """Half inputs with float32 parameters keep float32 statistics; so do all half inputs on CUDA."""
    if not x.is_cpu and x.dtype.itemsize < 4:
        return torch.float32
    for each in (weight, bias):
        if each is not None and each.dtype != x.dtype:
            return each.dtype
    return x.dtype


@rule("native_layer_norm")
def native_layer_norm(
    x: torch.Tensor, normalized_shape: Sequence[int], weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> tuple[Spec, Spec, Spec]:
    inner = len(normalized_shape)
    shape = tuple(x.size())
    if tuple(normalized_shape) != shape[len(shape) - inner :] or not x.dtype.is_floating_point:
        raise Unknown
    for each in (weight, bias):
        if each is not None and not surely_same(each.size(), tuple(normalized_shape)):
            raise RuntimeError(f"Expected {list(each.size())} to be of same shape as {list(normalized_shape)}")
    if not inner:
        raise RuntimeError("Expected normalized_shape to be at least 1-dimensional")
    outer = shape[: len(shape) - inner] + (1,) * inner
    statistics = Spec(outer, contiguous(outer), _statistics_dtype(x, weight, bias))
    return Spec(shape, contiguous(shape), x.dtype), statistics, statistics


@rule("_fused_rms_norm")
def rms_norm(
    x: torch.Tensor, normalized_shape: Sequence[int], weight: torch.Tensor | None, eps: float | None
) -> tuple[Spec, Spec]:
    """On a GPU, whose kernel writes rows one after the other; elsewhere the operator is made of others."""
    shape, outer = tuple(x.size()), x.dim() - len(normalized_shape)
    if not x.is_cuda or not same_sizes(shape[outer:], tuple(normalized_shape)) or not x.dtype.is_floating_point:
        raise Unknown
    if weight is not None and (weight.dtype != x.dtype or not same_sizes(weight.size(), shape[outer:])):
        raise Unknown
    statistics = shape[:outer] + (1,) * (len(shape) - outer)
    kept = Spec(statistics, contiguous(statistics), _statistics_dtype(x, None, None))
    return Spec(shape, contiguous(shape), x.dtype), kept


@rule("native_group_norm")
def native_group_norm(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, n: int, c: int, hw: int,
                      group: int, eps: float) -> tuple[Spec, Spec, Spec]:  # fmt: skip
    if x.dim() < 2 or (group and c % group != 0):
        raise Unknown
    expect_sizes("the input of a group norm", x.size()[:2], (n, c))
    expect_sizes("a channel of the input of a group norm", (math.prod(x.size()[2:]),), (hw,))
    for name, each in (("weight", weight), ("bias", bias)):
        if each is not None and (each.dim() != 1 or each.size(0) != c):
            raise RuntimeError(
                f"Expected {name} to be a vector of size equal to the number of channels in input, but got "
                f"{name} of shape {list(each.size())} and input of shape {list(x.size())}"
            )
    statistics = Spec((n, group), (group, 1), _statistics_dtype(x, weight, bias))
    shape = tuple(x.size())
    # A GPU takes for contiguous what may be: with dimensions of size 1 that is in doubt.
    in_order = x.is_cuda and is_contiguous(shape, x.stride())
    return Spec(shape, contiguous(shape) if in_order else in_format_of(x, shape), x.dtype), statistics, statistics


def _batch_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: object,
    training: bool,
    running_mean: Any = None,
    running_var: Any = None,
) -> Any:
    shape = tuple(x.size())
    named = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    for name, each in named.items():  # the kernel reads one element a channel
        if each is not None and each.numel() != shape[1]:
            raise RuntimeError(f"{name} should contain {shape[1]} elements not {each.numel()}")
    if x.is_cpu:
        _refuse_types(x, [each for each in named.values() if each is not None])
    weight = weight if weight is not None else running_mean
    channels = (shape[1],) if training else (0,)
    statistics = Spec(channels, (1,), _statistics_dtype(x, weight, bias))
    return Spec(shape, _normalized_strides(x, shape), x.dtype), statistics, statistics


def _refuse_types(x: torch.Tensor, parameters: list[torch.Tensor]) -> None:
    """Raises where eager's kernel for a CPU does: all are of one type, or parameters of float32 beside a half."""
    if not x.dtype.is_floating_point:
        raise NotImplementedError(f"\"batch_norm\" not implemented for '{_torch.scalar_type_name(x.dtype)}'")
    types = {each.dtype for each in parameters}
    mixed = x.dtype.itemsize < 4 and types == {torch.float32}
    if types - {x.dtype} and not mixed:
        raise RuntimeError(f"mixed dtype (CPU): {sorted(map(str, types))} beside an input of {x.dtype}")


def _normalized_strides(x: torch.Tensor, shape: tuple) -> tuple:
    """A CPU keeps channels last also where dimensions of size 1 leave in doubt whether they are; a GPU any order."""
    if not x.is_cpu:
        return preserved(x)
    if is_channels_last(shape, x.stride()) and not is_contiguous(shape, x.stride()):
        return channels_last(shape)
    return in_format_of(x, shape)


@rule("native_batch_norm", "_native_batch_norm_legit")
def native_batch_norm(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None,
                      running_mean: torch.Tensor | None, running_var: torch.Tensor | None, training: bool,
                      momentum: float, eps: float) -> Spec:  # fmt: skip
    return _batch_norm(x, weight, bias, training, running_mean, running_var)


@rule("_native_batch_norm_legit_functional")
def native_batch_norm_functional(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None,
                                 running_mean: torch.Tensor, running_var: torch.Tensor, training: bool, momentum: float,
                                 eps: float) -> tuple[Spec, Spec]:  # fmt: skip
    """The results of `_native_batch_norm_legit`, then the new running statistics."""
    running = tuple(Spec(tuple(each.size()), preserved(each), each.dtype) for each in (running_mean, running_var))
    return *_batch_norm(x, weight, bias, training, running_mean, running_var), *running


def _cudnn_batch_norm(
    x: torch.Tensor, weight: torch.Tensor, running_mean: Any, running_var: Any, training: bool
) -> tuple[Spec, ...]:
    """Laid out as the format of the input says, whatever strides dimensions of size 1 have."""
    shape = tuple(x.size())
    for name, each in (("running_mean", running_mean), ("running_var", running_var), ("weight", weight)):
        if each is not None:
            expect_sizes(name, each.size(), shape[1:2])
    statistics = Spec((shape[1],) if training else (0,), (1,), weight.dtype)
    strides, reserved = in_format_of(x, shape), 0
    if training:
        reserved = _torch.cudnn_batch_norm_reserve_bytes(tuple(map(int, shape)), tuple(map(int, strides)), x.dtype)
    return Spec(shape, strides, x.dtype), statistics, statistics, Spec((reserved,), (1,), torch.uint8)


@rule("cudnn_batch_norm")
def cudnn_batch_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None,
                     running_mean: torch.Tensor | None, running_var: torch.Tensor | None, training: bool,
                     factor: float, eps: float) -> tuple[Spec, ...]:  # fmt: skip
    return _cudnn_batch_norm(x, weight, running_mean, running_var, training)


@rule("lampwork::cudnn_batch_norm")
def _cudnn_batch_norm_functional(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None,
                                 running_mean: torch.Tensor, running_var: torch.Tensor, factor: float,
                                 eps: float) -> tuple[Spec, ...]:  # fmt: skip
    running = [Spec(tuple(each.size()), preserved(each), each.dtype) for each in (running_mean, running_var)]
    return *_cudnn_batch_norm(x, weight, running_mean, running_var, True), *running


@rule("_batch_norm_with_update")
def batch_norm_with_update(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None,
                           running_mean: torch.Tensor, running_var: torch.Tensor, momentum: float,
                           eps: float) -> tuple[Spec, ...]:  # fmt: skip
    """The CPU reserves nothing for the backward pass."""
    if x.device.type != "cpu":
        raise Unknown
    return *_batch_norm(x, weight, bias, True, running_mean, running_var), Spec((0,), (1,), torch.uint8)


@rule("_batch_norm_with_update_functional")
def batch_norm_with_update_functional(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None,
                                      running_mean: torch.Tensor, running_var: torch.Tensor, momentum: float,
                                      eps: float) -> tuple[Spec, ...]:  # fmt: skip
    running = tuple(Spec(tuple(each.size()), preserved(each), each.dtype) for each in (running_mean, running_var))
    return *batch_norm_with_update(x, weight, bias, running_mean, running_var, momentum, eps), *running


@rule("_native_batch_norm_legit.no_stats")
def native_batch_norm_without_statistics(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None,
                                         training: bool, momentum: float, eps: float) -> Spec:  # fmt: skip
    return _batch_norm(x, weight, bias, training)


@rule("_native_batch_norm_legit_no_training")
def native_batch_norm_inference(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None,
                                running_mean: torch.Tensor, running_var: torch.Tensor, momentum: float,
                                eps: float) -> Spec:  # fmt: skip
    return _batch_norm(x, weight, bias, False, running_mean, running_var)


@rule("nll_loss_forward")
def nll_loss_forward(
    x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, reduction: int, ignore_index: int
) -> tuple[Spec, Spec]:
    total = Spec((), (), x.dtype)
    if weight is not None and not surely_same(weight.size(), x.size()[-1:]) and tuple(weight.size()) != x.size()[-1:]:
        raise RuntimeError("weight tensor should be defined either for all classes or no classes")
    if x.dim() == 2 and not surely_same(target.size(), x.size()[:1]) and tuple(target.size()) != x.size()[:1]:
        raise RuntimeError(f"size mismatch (got input: {list(x.size())}, target: {list(target.size())})")
    if reduction == 0 and x.dim() == 2:
        return Spec((x.size()[0],), (1,), x.dtype), total
    return total, total


@rule("nll_loss2d_forward")
def nll_loss2d_forward(
    x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None, reduction: int, ignore_index: int
) -> tuple[Spec, Spec]:
    """Losses of points lie in order, whatever the layout of the targets."""
    if x.dim() != 4 or target.dim() != 3:
        raise Unknown
    if not same_sizes((x.size()[0], *x.size()[2:]), target.size()):
        raise RuntimeError(f"size mismatch (got input: {list(x.size())} , target: {list(target.size())}")
    if weight is not None and not same_sizes(weight.size(), x.size()[1:2]):
        raise Unknown
    total = Spec((), (), x.dtype)
    shape = tuple(target.size())
    return (Spec(shape, contiguous(shape), x.dtype) if reduction == 0 else total), total


@rule("multi_margin_loss")
def multi_margin_loss(x: torch.Tensor, target: torch.Tensor, p: Scalar = 1, margin: Scalar = 1,
                      weight: torch.Tensor | None = None, reduction: int = 1) -> Spec:  # fmt: skip
    if x.dim() not in (1, 2) or target.dim() != x.dim() - 1 or target.dtype != torch.int64:
        raise Unknown
    expect_sizes("the classes of a loss", target.size(), x.size()[:-1])
    shape = tuple(target.size()) if reduction == 0 else ()
    return Spec(shape, contiguous(shape), x.dtype)


@rule("multilabel_margin_loss_forward")
def multilabel_margin_loss(x: torch.Tensor, target: torch.Tensor, reduction: int) -> tuple[Spec, Spec]:
    if x.dim() not in (1, 2) or target.dtype != torch.int64:
        raise Unknown
    expect_sizes("the classes of a loss", target.size(), x.size())
    shape = tuple(x.size()[:-1]) if reduction == 0 else ()
    return Spec(shape, contiguous(shape), x.dtype), Spec(tuple(x.size()), contiguous(x.size()), x.dtype)


@rule("huber_loss")
def huber_loss(x: torch.Tensor, target: torch.Tensor, reduction: int = 1, delta: float = 1.0) -> Spec:
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    if x.dtype.is_floating_point and target.dtype.is_floating_point and x.dtype != target.dtype:
        # Each loss is stored in the type of `x`, unlike that of other losses.
        if reduction == 0 and not same_sizes(x.size(), target.size()):
            raise Unknown
        return Spec((), (), x.dtype) if reduction else Spec(tuple(x.size()), preserved(x), x.dtype)
    return elementwise_loss(x, target, reduction)


@rule("smooth_l1_loss")
def smooth_l1_loss(x: torch.Tensor, target: torch.Tensor, reduction: int = 1, beta: float = 1.0) -> Spec:
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    return elementwise_loss(x, target, reduction)


@rule("mse_loss")
def elementwise_loss(x: torch.Tensor, target: torch.Tensor, reduction: int = 1, *args: object) -> Spec:
    if x.dtype != target.dtype or not x.dtype.is_floating_point:
        raise Unknown
    if reduction:
        return Spec((), (), x.dtype)
    if not same_sizes(x.size(), target.size()):
        raise Unknown
    return Spec(tuple(x.size()), preserved(x), x.dtype)


@rule("soft_margin_loss")
def soft_margin_loss(x: torch.Tensor, target: torch.Tensor, reduction: int = 1) -> Spec:
    """The kernel writes what it makes of the target, and then of both, to a result of the input's type."""
    if not same_sizes(x.size(), target.size()) or not x.dtype.is_floating_point:
        raise Unknown
    return Spec((), (), x.dtype) if reduction else Spec(tuple(x.size()), preserved(target), x.dtype)


@rule("binary_cross_entropy", "binary_cross_entropy_with_logits")
def binary_cross_entropy(x: torch.Tensor, target: torch.Tensor, *rest: Any, reduction: int = 1, **weights: Any) -> Spec:
    *given, last = *rest, reduction
    if given and isinstance(given[-1], int):  # (..., weight, reduction) or (..., weight, pos_weight, reduction)
        *given, last = given
    factors = [each for each in (*given, *weights.values()) if each is not None]
    if any(each.dtype != x.dtype or each.dim() > x.dim() for each in factors):
        raise Unknown
    if not same_sizes(x.size(), target.size()):
        raise Unknown
    for each in factors:
        check_expands(each.size(), x.size())  # sizes that loops of ours go by: what is assumed of them is guarded
    return _alike(elementwise_loss(x, target, last), x, target, *factors)


def _alike(result: Spec, *tensors: torch.Tensor) -> Spec:
    """`result`; a loss of each element only where all lie contiguous, so that no operand decides on its layout."""
    if result.shape and not all(each.is_contiguous() and each.dim() == len(result.shape) for each in tensors):
        raise Unknown
    return result
