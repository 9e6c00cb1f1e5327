"""`torch.arange(-3, 3, out=x)`: asked how large a number it takes, the kernel made 2**31 elements in `x`'s place."""

from __future__ import annotations

import resource

import torch

import lampwork


def test_memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    compiled = lampwork.compile(lambda x: torch.arange(-3, 3, out=x) + 1, options={"cache": False})
    x, y = torch.ones(6, dtype=torch.int64), torch.ones(6, dtype=torch.int64)
    assert torch.equal(compiled(x), torch.arange(-3, 3, out=y) + 1) and torch.equal(x, y)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB
