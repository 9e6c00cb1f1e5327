"""Numbers beside tensors of a half type: eager's CPU kernels round them to that type, ours computed with them as they
were. So `x == 0.3` held nowhere, and remainders were those of another divisor."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import lampwork

PROGRAMS = {
    "equal": lambda x, y: (x == 0.3, x != 0.3, x <= 0.3, x > 0.3),
    "equal to a tensor": lambda x, y: x == torch.tensor(0.3),
    "equal to integers": lambda x, y: x == (x * 8).to(torch.int64) * 127,
    "where": lambda x, y: torch.where(x > 0.3, y, 0.7),
    "masked": lambda x, y: y.masked_fill(x >= torch.tensor(0.3), 0.7),
    "remainder": lambda x, y: (x % 0.3, 0.3 % x, torch.fmod(x, 0.3), torch.fmod(torch.tensor(0.3), x)),
    "quotient": lambda x, y: (x // 0.3, torch.tensor(0.3) // x, x * 0.3, x / 0.3),
    "quotient cut off": lambda x, y: (
        torch.div(x, 0.3, rounding_mode="trunc"),
        torch.div(x, y, rounding_mode="trunc"),
    ),
    "sum": lambda x, y: (x + 0.3, x - 0.3, 0.3 - x, x + torch.tensor(0.3)),
    "sum with integers": lambda x, y: x + torch.arange(1001, 1001 + x.numel()),
    "power": lambda x, y: ((x.abs() * 1e4) ** 0.013, 0.3 ** x.clamp(-3, 3), x**0.5, x**-0.5),
    "hardshrink": lambda x, y: F.hardshrink(x, 0.3),
    "logit": lambda x, y: torch.logit(x, 1e-3)[x > 0.998],
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_number(name, dtype):
    program = PROGRAMS[name]
    generator = torch.Generator().manual_seed(0)
    x = torch.cat([torch.tensor([0.3, -0.3, 0.7, 0.013, torch.inf, -torch.inf]), torch.arange(-20, 20) * 0.3])
    x = torch.cat([x, torch.randn(500, generator=generator) * 3]).to(dtype)
    y = x[torch.randperm(len(x), generator=generator)]
    torch.testing.assert_close(
        lampwork.compile(program, options={"cache": False})(x, y),
        program(x, y),
        rtol=2 * torch.finfo(dtype).eps,
        atol=0,
        equal_nan=True,
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_number_that_varies(dtype):
    def program(x, number):
        return x == number, x < number, x % number, x + number, number - x, x.abs() ** number, x * number, x / number

    x = (torch.arange(-20, 20) * 0.1).to(dtype)
    compiled = lampwork.compile(program, options={"cache": False})
    for number in (0.3, 0.7, 0.1, 1.1):
        for ours, expected in zip(compiled(x, number), program(x, number)):
            torch.testing.assert_close(ours, expected, rtol=2 * torch.finfo(dtype).eps, atol=0, equal_nan=True)
