"""`flex_attention` that is differentiated: eager's own formulas, with the scores computed again for the backward pass.

    scores = q @ k^T * scale                   _Scores      dq = ds @ k, dk = ds^T @ q     ds rounded to q's type
    s = where(mask, score_mod(scores), -inf)   autograd's formulas, which give captured tensors their gradients
    out, lse = softmax(s) @ v                  _Softmax     p = exp(s - lse), dv = p^T @ dout
                                                            ds = p * (dout @ v^T - sum(out * dout) + dlse)

Eager computes the operator in one function of autograd and `score_mod`'s derivative in a graph of its own; here the
functions of `score_mod` are recorded one by one, between two functions of autograd. What is between q, k and s is
marked as a checkpointed function is: nothing that is as large as the scores is kept.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from lampwork import _torch
from lampwork.capture.record.products import product

_LN_2 = math.log(2)


def has_kernels(args: tuple) -> bool:
    """Whether calls with these arguments become kernels that do not have the scores in memory."""
    query, key, value = args[:3] if len(args) > 2 else (None, None, None)
    if not all(isinstance(each, torch.Tensor) and _is_on_gpu(each) for each in (query, key, value)):
        return False
    types = (torch.float16, torch.bfloat16, torch.float32)
    # Kernels are for heads of one size: one that is a symbol becomes a number.
    return query.dtype in types and all(int(each.size(-1)) <= 256 for each in (key, value))


def _is_on_gpu(tensor: torch.Tensor) -> bool:
    return tensor.is_cuda


def flex_attention(
    world: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, score_mod: Any, block_mask: tuple,
    scale: float, kernel_options: Any, score_mod_buffers: tuple = (), mask_mod_buffers: tuple = (),
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """(result, logarithms of the sums of exponentials, maxima), the last two by base 2."""
    if query.size(0) != key.size(0) and not (query.size(0) > 1 and key.size(0) == 1):
        raise RuntimeError(f"Bq and Bkv must broadcast. Got Bq={query.size(0)} and Bkv={key.size(0)}")
    run, recorder = world.machine.call, world.recorder
    strides = query.stride()
    with recorder.computed_again() as number:
        with torch.no_grad():
            sizes = (*query.size()[:3], key.size(2))
            shaped = torch.empty(sizes, dtype=_precision(query), device=query.device)
            mask = run(_torch.allowed, (shaped, block_mask[-1], mask_mod_buffers))
            if _is_on_gpu(query) and not _torch.allows_everything(block_mask[-1]):
                mask = _within_blocks(mask, shaped, block_mask)
        scores = _Scores.apply(world, query, key, mask, scale)
        scores = run(_torch.modified_scores, (scores, mask, score_mod, score_mod_buffers))
    if scores.requires_grad or value.requires_grad:
        if block_mask[7] is None:
            raise RuntimeError("BlockMask q_indices is None. Backward pass requires q_indices to be computed. "
                               "Please create the BlockMask with compute_q_blocks=True")  # fmt: skip
        recorder.own_gradients = "it applies flex_attention, whose gradients eager does not differentiate"
    return _Softmax.apply(world, number, scores, value, query.dtype, strides)


def _within_blocks(mask: torch.Tensor, scores: torch.Tensor, block_mask: tuple) -> torch.Tensor:
    """`mask` with what a block mask promises: that nothing is allowed before the first block that is listed for a block
    of rows, and for one of keys, nor after the last one."""
    rows, keys = (torch.arange(scores.size(dim), device=scores.device) for dim in (2, 3))
    *_, row_block, key_block, _ = block_mask
    first, end = _bounds(block_mask[2:6], row_block, key_block, scores.size(2))
    within = (keys >= first.unsqueeze(-1)) & (keys < end.unsqueeze(-1))
    if block_mask[6] is not None and block_mask[7] is not None:
        first, end = _bounds(block_mask[6:10], key_block, row_block, scores.size(3))
        rows = rows.unsqueeze(-1)
        within = within & (rows >= first.unsqueeze(-2)) & (rows < end.unsqueeze(-2))
    return _torch.promised()(mask, within)


def _bounds(lists: Any, block: int, other_block: int, extent: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """(the first element, the one after the last) of the other dimension that blocks are listed for, for each one."""
    first = end = None
    for number, indices in zip(lists[::2], lists[1::2]):
        if number is None or indices is None:
            continue
        is_listed = torch.arange(indices.size(-1), device=indices.device) < number.unsqueeze(-1)
        low = torch.where(is_listed, indices, indices.size(-1)).amin(-1)
        high = torch.where(is_listed, indices, -1).amax(-1)
        first = low if first is None else torch.minimum(first, low)
        end = high if end is None else torch.maximum(end, high)
    assert first is not None and end is not None
    found = []
    for each in (first.to(torch.int64) * other_block, (end.to(torch.int64) + 1) * other_block):
        whole = each.unsqueeze(-1).expand(*each.size(), block).reshape(*each.size()[:-1], each.size(-1) * block)
        found.append(whole[..., :extent])
    return found[0], found[1]


class _Scores(torch.autograd.Function):
    """`query @ key^T * scale` in the precision of scores."""

    @staticmethod
    def forward(
        ctx: Any, world: Any, query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor, scale: float
    ) -> torch.Tensor:
        ctx.save_for_backward(query, key, mask)
        ctx.world, ctx.scale = world, scale
        precision = _precision(query)
        scores = _product(query.to(precision), _repeated(key, query).to(precision).transpose(-2, -1))
        return _scaled(world, scores, scale).to(precision)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        query, key, mask = ctx.saved_tensors
        gradient = _scaled(ctx.world, gradient, ctx.scale).to(query.dtype)
        gradient = torch.where(mask, gradient, torch.zeros((), dtype=query.dtype, device=query.device))
        of_query = of_key = None
        if ctx.needs_input_grad[1]:
            of_query = _laid_out(ctx.world, _product(gradient, _repeated(key, query)), query)
        if ctx.needs_input_grad[2]:
            of_key = _laid_out(ctx.world, _summed(_product(gradient.transpose(-2, -1), query), key), key)
        return None, of_query, of_key, None, None


class _Softmax(torch.autograd.Function):
    """What the softmax of scores weighs of values, and its statistics."""

    @staticmethod
    def forward(
        ctx: Any, world: Any, number: int, scores: torch.Tensor, value: torch.Tensor, dtype: torch.dtype, strides: Any
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        with world.recorder.computed_again(number):
            sums = torch.logsumexp(scores, -1)
            sums = torch.where(torch.all(scores == -float("inf"), dim=-1), -float("inf"), sums)
            maxima = torch.max(scores, dim=-1)[0]
            weights = torch.ops.aten._safe_softmax.default(scores, -1).to(dtype)
            repeated = _repeated(value, scores).to(dtype)
        result = _product(weights, repeated)
        result = world.machine.call(_torch.laid_out_as, (result, strides))
        sums, maxima = sums / _LN_2, maxima / _LN_2
        ctx.mark_non_differentiable(maxima)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(scores, value, result, sums)
        ctx.world, ctx.dtype = world, dtype
        return result, sums, maxima

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_result: Any, of_sums: Any, _: Any) -> Any:
        scores, value, result, sums = ctx.saved_tensors
        if of_result is None:
            of_result = torch.zeros_like(result)
        sums = (sums * _LN_2).unsqueeze(-1)
        weights = torch.where(sums == -float("inf"), 0, torch.exp(scores - sums))
        of_value = None
        if ctx.needs_input_grad[3]:
            of_value = _summed(_product(weights.to(ctx.dtype).transpose(-2, -1), of_result), value)
            of_value = _laid_out(ctx.world, of_value, value)
        wide = of_result.to(scores.dtype)
        of_weights = _product(wide, _repeated(value, scores).to(scores.dtype).transpose(-2, -1))
        of_row = torch.sum(result.to(scores.dtype) * wide, -1, keepdim=True)
        if of_sums is not None:
            of_row = of_row - (of_sums / _LN_2).unsqueeze(-1)
        return None, None, weights * (of_weights - of_row), of_value, None, None


def _scaled(world: Any, scores: torch.Tensor, scale: Any) -> torch.Tensor:
    """`scores * scale`, which may be a number of the call, or of its sizes."""
    return world.binary_op(operator.mul, scores, scale)


def _laid_out(world: Any, gradient: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """`gradient` with its dimensions ordered as those of `factor` are in memory."""
    return world.machine.call(_torch.laid_out_as, (gradient, factor.stride()))


def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """`left @ right`. (Called by native code, PyTorch 2.11's `matmul` asks for sizes as numbers.)"""
    made = product(left, right)
    return torch.matmul(left, right) if made is NotImplemented else made


def _repeated(factor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Keys or values with the batches and heads of `like`."""
    groups = like.size(1) // factor.size(1)
    if groups != 1:
        factor = torch.repeat_interleave(factor, groups, dim=1)
    return factor.expand((like.size(0), *factor.size()[1:]))


def _summed(gradient: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """The gradient of `factor` out of that of `_repeated`."""
    if gradient.size(1) != factor.size(1):
        gradient = gradient.view((gradient.size(0), factor.size(1), -1, *gradient.size()[2:])).sum(2)
    return gradient if gradient.size(0) == factor.size(0) else gradient.sum(0, keepdim=True)


def _precision(query: torch.Tensor) -> torch.dtype:
    return torch.float64 if query.dtype == torch.float64 else torch.float32
