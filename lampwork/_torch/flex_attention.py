"""`flex_attention` as eager computes it: the operator, and what its score and mask functions are applied with.

`modified_scores` and `allowed` are what `torch._higher_order_ops.flex_attention` does between the products, in pieces:
a capture interprets them. What is loaded by the first look is known to be loaded: a program that has called
`flex_attention` has loaded it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

_OPERATORS = "torch._higher_order_ops.flex_attention"
_FUNCTIONS = "torch.nn.attention.flex_attention"
_INDEXING = "torch._dynamo._trace_wrapped_higher_order_op"


def is_flex_attention(operator: object) -> bool:
    """Whether `operator` is the one that `torch.nn.attention.flex_attention` calls."""
    return operator is getattr(sys.modules.get(_OPERATORS), "flex_attention", None)


def allows_everything(mask_mod: object) -> bool:
    """Whether `mask_mod` is that of masks that were made without one: then eager masks nothing, whatever they list."""
    return mask_mod is getattr(sys.modules.get(_FUNCTIONS), "noop_mask", None)


def makes_block_masks(function: Callable) -> bool:
    """Whether `function` makes block masks of mask functions, for which it may call the peer."""
    return function.__module__ == _FUNCTIONS and function.__qualname__ == "create_block_mask"


def is_plain_indexing(cls: object) -> bool:
    """Whether `cls` is the function of autograd by which score functions index tensors. As an operator, indexing has
    the same values and gradients."""
    return cls is getattr(sys.modules.get(_INDEXING), "ModIndex", None)


def allowed(scores: torch.Tensor, mask_mod: Callable, buffers: tuple) -> torch.Tensor:
    """Where `mask_mod` is true, for the batches, heads, rows and keys of `scores`."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
    from torch.nn.attention.flex_attention import _vmap_for_bhqkv

    places = [torch.arange(0, scores.size(dim), device=scores.device) for dim in range(4)]
    mask_mod = _vmap_for_bhqkv(mask_mod, prefix=(), suffix=(None,) * len(buffers))
    with TransformGetItemToIndex():
        return mask_mod(*places, *buffers)


def modified_scores(scores: torch.Tensor, mask: torch.Tensor, score_mod: Callable, buffers: tuple) -> torch.Tensor:
    """What `score_mod` makes of `scores`, -inf outside of the mask."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
    from torch.nn.attention.flex_attention import _vmap_for_bhqkv

    places = [torch.arange(0, scores.size(dim), device=scores.device) for dim in range(4)]
    score_mod = _vmap_for_bhqkv(score_mod, prefix=(0,), suffix=(None,) * len(buffers))
    lowest = torch.tensor(-float("inf"), dtype=scores.dtype, device=scores.device)
    with TransformGetItemToIndex():
        return torch.where(mask, score_mod(scores, *places, *buffers), lowest)


def laid_out_as(result: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """`result` in new memory whose dimensions are ordered as those of these strides, the last one innermost."""
    from torch._higher_order_ops.flex_attention import _permute_strides

    return _permute_strides(result, strides)
