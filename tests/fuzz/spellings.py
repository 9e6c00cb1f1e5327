"""All functions of PyTorch that users call an operator by."""

from __future__ import annotations

from collections.abc import Callable

import torch

#: Where users find operators.
OWNERS = (torch, torch.Tensor, torch.nn.functional, torch.special, torch.linalg)
#: Other names of operators.
_ALIASES = {
    "sigmoid": ("expit",), "clamp": ("clip",), "matmul": ("__matmul__", "__rmatmul__"), "prod": (), "ndtr": (),
}  # fmt: skip


def spellings(*names: str) -> frozenset[Callable]:
    """Functions and methods of those names, and of their other names. Operators in place have names of their own."""
    every = [each for name in names for each in (name, *_ALIASES.get(name, ()))]
    return frozenset(getattr(owner, name) for owner in OWNERS for name in every if callable(getattr(owner, name, None)))


def spellings_in_place(*names: str) -> frozenset[Callable]:
    """The operators in place of those names."""
    return spellings(*(f"{each}_" for name in names for each in (name, *_ALIASES.get(name, ()))))
