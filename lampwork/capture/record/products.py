"""Products of matrices on symbolic sizes: in terms of the operators that take them.

    matmul(x[s0, s1, 8], w[8, 6])              ->    mm(x[s0*s1, 8], w) as [s0, s1, 6]
    matmul(x[s0, 2, s1, 8], y[s0, 2, 8, s1])   ->    bmm(x[2*s0, s1, 8], y[2*s0, 8, s1]) as [s0, 2, s1, s1]
    linear(x[s0, s1, 8], w[6, 8], b[6])        ->    addmm(b, x[s0*s1, 8], w.t()) as [s0, s1, 6]

Before PyTorch 2.13 `torch.matmul` asks for every size as a number, and so does `linear` without a bias; that would
specialise them all. Later releases ask whether sizes are 1, on the way to an answer that is the same if they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from lampwork.capture.record.reshapes import may_be_one, rearranged
from lampwork.fakes.strides import contiguous, equal_for_all

#: Whether the functions take symbols themselves, so that nothing need be said in their place.
TAKES_SYMBOLS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 13)


def product(left: Any, right: Any) -> Any:
    """As `torch.matmul`; NotImplemented where that should be called itself: it takes symbols, there are none, one of
    two matrices or vectors is asked for, and to word errors."""
    if not (isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor)):
        return NotImplemented
    if TAKES_SYMBOLS and not (may_be_one(left) or may_be_one(right)):
        return NotImplemented
    if not left.dim() or not right.dim() or max(left.dim(), right.dim()) < 3:
        return NotImplemented
    if not any(type(size) is torch.SymInt for each in (left, right) for size in each.shape):
        return NotImplemented
    if left.shape[-1] != right.shape[-2 if right.dim() > 1 else 0]:
        return NotImplemented
    if left.dim() == 1:
        return _batched(left.unsqueeze(0), right, squeezed=-2)
    if right.dim() > 2:
        return _batched(left, right)
    rows = rearranged(left, (math.prod(left.shape[:-1]), left.shape[-1]))  # one product of them all
    if right.dim() == 1:
        return torch.mv(rows, right).view(left.shape[:-1])
    return torch.mm(rows, right).view(*left.shape[:-1], right.shape[1])


def _with_bias(rows: Any, weight: torch.Tensor, bias: Any) -> Any:
    """As `linear` of a contiguous tensor of three dimensions, of which one may be of size 1."""
    if not (TAKES_SYMBOLS and isinstance(rows, torch.Tensor) and isinstance(bias, torch.Tensor) and may_be_one(rows)):
        return NotImplemented
    if rows.dim() != 3 or bias.dim() != 1 or not all(map(equal_for_all, rows.stride(), contiguous(rows.shape))):
        return NotImplemented
    flat = rows.view(rows.shape[0] * rows.shape[1], rows.shape[2])
    return torch.addmm(bias, flat, weight.t()).view(rows.shape[0], rows.shape[1], weight.shape[0])


def _batched(left: torch.Tensor, right: torch.Tensor, squeezed: int | None = None) -> Any:
    """The products of two stacks of matrices, whose batches are broadcast."""
    batch = _broadcast(left.shape[:-2], right.shape[:-2])
    if batch is None:
        return NotImplemented
    one, other = (
        rearranged(each.expand(*batch, *each.shape[-2:]), (math.prod(batch), *each.shape[-2:]))
        for each in (left, right)
    )
    result = torch.bmm(one, other).view(*batch, left.shape[-2], right.shape[-1])
    return result if squeezed is None else result.squeeze(squeezed)


def _broadcast(left: Sequence[Any], right: Sequence[Any]) -> list[Any] | None:
    """The common batch dimensions; None if there are none."""
    found = []
    for place in range(max(len(left), len(right)), 0, -1):
        one = left[-place] if place <= len(left) else 1
        other = right[-place] if place <= len(right) else 1
        if not (one == other or one == 1 or other == 1):
            return None
        found.append(one if equal_for_all(one, other) else other if one == 1 else one)
    return found


def called(function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """What `function(*args, **kwargs)` gives if that is a product told here, else NotImplemented."""
    if function is torch.nn.functional.linear:
        named = dict(zip(("input", "weight", "bias"), args)) | kwargs
        weight = named.get("weight")
        if len(args) > 3 or named.keys() - {"input", "weight", "bias"}:
            return NotImplemented
        if not isinstance(weight, torch.Tensor) or weight.dim() != 2:
            return NotImplemented
        if named.get("bias") is not None:
            return _with_bias(named.get("input"), weight, named["bias"])
        return product(named.get("input"), weight.t())
    owner = getattr(function, "__self__", None)
    if isinstance(owner, torch.Tensor):  # a bound method
        function, args = getattr(torch.Tensor, function.__name__, None), (owner, *args)
    if function in _PRODUCTS and len(args) == 2 and not kwargs:
        return product(*args)
    return NotImplemented


_PRODUCTS = frozenset({torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__})
