"""Dimensions that are one long are laid out as eager lays them out beside a number, though a number that varies is a
tensor to the graph."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import lampwork

PROGRAMS = {
    "power": lambda x, n: x**n,
    "clamp": lambda x, n: torch.clamp(x, n, 2.5),
    "clip": lambda x, n: torch.clip(x, None, n),
    "sum": lambda x, n: x + n,
    "choice": lambda x, n: torch.where(x > 0, x, n),
    "remainder": lambda x, n: torch.fmod(x, n),
    "comparison": lambda x, n: x > n,
    "leaky_relu": lambda x, n: F.leaky_relu(x, n),
    "number to a power": lambda x, n: n**x,
    "pow of a number": lambda x, n: torch.pow(n, x),
    "float_power of a number": lambda x, n: torch.float_power(n, x),
    "difference from a number": lambda x, n: n - x,
    "quotient of a number": lambda x, n: n / x,
    "choice of a number": lambda x, n: torch.where(x > 0, n, x),
    "remainder of a number": lambda x, n: torch.remainder(n, x),
    "whole quotient": lambda x, n: x // n,
    "xlogy of a number": lambda x, n: torch.xlogy(n, x),
    "lerp": lambda x, n: torch.lerp(x, x, n),
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n),
    "sum with a factor": lambda x, n: torch.add(x, x, alpha=n),
}
LAYOUTS = [
    torch.rand(1, 2).t(), torch.rand(2, 2, 3, 1).to(memory_format=torch.channels_last), torch.rand(3, 4).t(),
    torch.rand(2, 1, 1, 1).transpose(0, -1), torch.rand(4).as_strided((1, 2, 1, 2), (4, 1, 4, 2)),
    torch.rand(3, 4)[:, :2], torch.rand(3, 1).expand(3, 2),
    torch.rand(1, 1, 2, 4)[..., 2:3],
]  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("x", LAYOUTS)
def test_strides(name, x):
    program = PROGRAMS[name]
    compiled = lampwork.compile(program)
    for number in (0.6, 0.25, 0.125):
        ours, expected = compiled(x, number), program(x, number)
        torch.testing.assert_close(ours, expected)
        assert ours.stride() == expected.stride()
    assert not lampwork.stats(compiled)["fallbacks"]
