"""Products of matrices on symbolic sizes: in terms of the operators that take them.

Before PyTorch 2.13 `torch.matmul` asks for every size as a number, and so does `linear` without a bias; that would
specialise them all:

    matmul(x[s0, s1, 8], w[8, 6])              ->    mm(x[s0*s1, 8], w) as [s0, s1, 6]
    matmul(x[s0, 2, s1, 8], y[s0, 2, 8, s1])   ->    bmm(x[2*s0, s1, 8], y[2*s0, 8, s1]) as [s0, 2, s1, s1]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

#: Whether the functions take symbols themselves, so that nothing need be said in their place.
TAKES_SYMBOLS = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 13)


def product(left: Any, right: Any) -> Any:
    """As `torch.matmul`; NotImplemented where that should be called itself: it takes symbols, there are none, one of
    two matrices or vectors is asked for, and to word errors."""
    if TAKES_SYMBOLS or not (isinstance(left, torch.Tensor) and isinstance(right, torch.Tensor)):
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
    rows = left.reshape(math.prod(left.shape[:-1]), left.shape[-1])  # one product of them all
    if right.dim() == 1:
        return torch.mv(rows, right).view(left.shape[:-1])
    return torch.mm(rows, right).view(*left.shape[:-1], right.shape[1])


def _batched(left: torch.Tensor, right: torch.Tensor, squeezed: int | None = None) -> Any:
    """The products of two stacks of matrices, whose batches are broadcast."""
    batch = _broadcast(left.shape[:-2], right.shape[:-2])
    if batch is None:
        return NotImplemented
    one, other = (
        each.expand(*batch, *each.shape[-2:]).reshape(math.prod(batch), *each.shape[-2:]) for each in (left, right)
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
        found.append(other if one == 1 else one)
    return found


def called(function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """What `function(*args, **kwargs)` gives if that is a product told here, else NotImplemented."""
    if TAKES_SYMBOLS:
        return NotImplemented
    if function is torch.nn.functional.linear:
        named = dict(zip(("input", "weight", "bias"), args)) | kwargs
        weight = named.get("weight")
        if len(args) > 3 or named.keys() - {"input", "weight", "bias"} or named.get("bias") is not None:
            return NotImplemented
        if not isinstance(weight, torch.Tensor) or weight.dim() != 2:
            return NotImplemented
        return product(named.get("input"), weight.t())
    owner = getattr(function, "__self__", None)
    if isinstance(owner, torch.Tensor):  # a bound method
        function, args = getattr(torch.Tensor, function.__name__, None), (owner, *args)
    if function in _PRODUCTS and len(args) == 2 and not kwargs:
        return product(*args)
    return NotImplemented


_PRODUCTS = frozenset({torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__})
