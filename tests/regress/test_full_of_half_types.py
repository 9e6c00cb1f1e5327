"""A number in a tensor of a half type is that type's number, also where kernels compute it anew instead of loading it."""

from __future__ import annotations

import pytest
import torch

import lampwork
from lampwork.lower.expressions import constant


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("number", [3.14, 1e-3, 65503.0, -1e-40, 0.1, float("inf")])
def test_number_is_rounded_to_the_half_type(dtype, number):
    def program(x):
        made = torch.full((3, 5), number, dtype=dtype)
        return made.float() + x * 0, made / x.to(dtype), torch.full_like(x, number, dtype=dtype).double()

    x = torch.rand(3, 5) + 1
    for ours, eager in zip(lampwork.compile(program)(x), program(x)):
        assert torch.equal(ours.nan_to_num(), eager.nan_to_num())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_literals_round_as_torch_does(dtype):
    chance = torch.Generator().manual_seed(0)
    numbers = torch.randn(3000, generator=chance, dtype=torch.float64) * 10.0 ** torch.randint(
        -46, 39, (3000,), generator=chance
    )
    for number in [*numbers.tolist(), 65519.0, 65520.0, 3.39e38, 3.4e38, 1e39]:
        assert constant(number, dtype).value == torch.tensor(number, dtype=getattr(torch, dtype)).item()
