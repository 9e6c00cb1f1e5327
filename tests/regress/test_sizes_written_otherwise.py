"""Equal sizes that are written in several ways: kernels that join them were refused."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import lampwork

PROGRAMS = {
    "even and odd": lambda x: torch.cat([x[::2], x[1::2]]) + x,
    "arange with a step": lambda x: torch.arange(0, x.shape[0], 2) + x[::2],
    "arange of floats": lambda x: torch.arange(0.0, x.shape[0], 2.0) + x[::2],
    "second half": lambda x: x[x.shape[0] // 2 :] + x[::2],
    "chunks": lambda x: x.chunk(2)[1] + x[1::2],
    "rounded up": lambda x: x[: -(-x.shape[0] // 2)] + x[::2],
    "what a half leaves": lambda x: x[::2] + torch.zeros(x.shape[0] - x.shape[0] // 2),
    "pooled twice": lambda x: F.max_pool1d(F.max_pool1d(x[None], 2, ceil_mode=True), 2, ceil_mode=True)[0] + x[::4],
    "padded to a multiple": lambda x: (
        F.pad(x, (0, (4 - x.shape[0] % 4) % 4)).view(-1, 4).sum(-1) + F.avg_pool1d(x[None], 4, ceil_mode=True)[0]
    ),
    "thirds": lambda x: torch.cat([x[i::3] for i in range(3)]) * torch.arange(x.shape[0]),
    "cosines": lambda x: torch.cat([x[::2], x[1::2].flip([0])]) * torch.hann_window(x.shape[0]),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("grad", [False, True])
def test_values_and_gradients(name, grad):
    program = PROGRAMS[name]
    compiled = lampwork.compile(program)
    for size in (8, 9, 13, 16):
        x = torch.randn(size, requires_grad=grad)
        expected, actual = program(x), compiled(x)
        torch.testing.assert_close(actual, expected)
        if grad:
            gradients = [torch.autograd.grad(each.sum(), x) for each in (actual, expected)]
            torch.testing.assert_close(*gradients)
    assert lampwork.stats(compiled)["captures"] <= 4
