"""Arguments of torch programs: the same values on every call, without touching the global generator."""

from __future__ import annotations

import torch
from torch import nn


def values(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Normal numbers of `shape`, fixed by shape and `seed`."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).to(dtype)


def integers(*shape: int, high: int = 10, seed: int = 0) -> torch.Tensor:
    """Whole numbers from 0 to `high` - 1, as int64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, high, shape, generator=generator)


def seeded(make, seed: int = 0):
    """`make()` with the global generator seeded by `seed`; the generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def frozen(make, seed: int = 0) -> nn.Module:
    """The module `make()` gives, with fixed weights, in eval mode, requiring no gradients."""
    return seeded(make, seed).eval().requires_grad_(False)
