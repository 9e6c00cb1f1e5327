"""`bincount(minlength=n)` with a size that varies: the symbol stood in an expression of sizes as it was."""

from __future__ import annotations

import torch

import lampwork


def degrees(x):
    count = x.shape[0]
    target = (torch.arange(count).repeat(2) + 1) % count
    degree = torch.bincount(target, minlength=count)
    return x * 2, degree.clamp(min=1)


def test_sizes_that_vary():
    compiled = lampwork.compile(degrees)
    for count in (3, 5, 4, 1):
        for found, expected in zip(compiled(torch.ones(count, 2)), degrees(torch.ones(count, 2)), strict=True):
            torch.testing.assert_close(found, expected)
    stats = lampwork.stats(compiled)
    assert not stats["breaks"] and not stats["fallbacks"]
