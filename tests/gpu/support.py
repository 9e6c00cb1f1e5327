"""What the GPU tests share: compiling without the disk cache, and judging by the acceptance rule."""

from __future__ import annotations

import copy

import torch

import lampwork
from lampwork.benchmark import zoo
from lampwork.verdict.verify import compare


def compiled_of(function, mode="default", **options):
    """`function` compiled without the disk cache, so that each test captures anew."""
    return lampwork.compile(function, mode=mode, options={"cache": False, **options})


def in_double(function, *args):
    """The call in float64: the reference of the acceptance rule."""
    with torch.no_grad():
        if isinstance(function, torch.nn.Module):
            function = copy.deepcopy(function).double()
        return function(*zoo.convert(args, dtype=torch.float64))


def assert_close(ours, eager, reference=None):
    verdict = compare(ours, eager, reference)
    assert verdict.accepted, verdict.reasons


def assert_compiled(function, captures=1):
    """The function ran compiled: kernels of our own, no fall-back, as many captures as told."""
    stats = lampwork.stats(function)
    assert list(stats["fallbacks"]) == []
    assert stats["captures"] == captures, [str(each.diagnostic) for each in stats["recompiles"]]
    assert stats["native_kernels"] > 0


class Block(torch.nn.Module):
    """A normalised feed-forward block: a norm, two products, an activation, an addition."""

    def __init__(self, width=64):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.inner = torch.nn.Linear(width, 2 * width)
        self.outer = torch.nn.Linear(2 * width, width)
        self.register_buffer("shift", torch.full((width,), 0.25))

    def forward(self, x):
        return x + self.outer(torch.nn.functional.gelu(self.inner(self.norm(x)))) + self.shift
