"""Dimensions that are one long are laid out as eager lays them out beside a number, though a number that varies is a
tensor to the graph."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import lampwork

PROGRAMS = {
    "power": lambda x, n: x**n,
    "clip": lambda x, n: torch.clip(x, None, n),
    "sum": lambda x, n: x + n,
    "choice": lambda x, n: torch.where(x > 0, x, n),
    "remainder": lambda x, n: torch.fmod(x, n),
    "comparison": lambda x, n: x > n,
    "leaky_relu": lambda x, n: F.leaky_relu(x, n),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("x", [torch.rand(1, 2).t(), torch.rand(2, 2, 3, 1).to(memory_format=torch.channels_last)])
def test_strides(name, x):
    program = PROGRAMS[name]
    compiled = lampwork.compile(program)
    for number in (0.6, 0.25, 0.125):
        ours, expected = compiled(x, number), program(x, number)
        torch.testing.assert_close(ours, expected)
        assert ours.stride() == expected.stride()
    assert not lampwork.stats(compiled)["fallbacks"]
