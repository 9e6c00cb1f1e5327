"""Regression: `x.copy_(number)` with a number that varies from call to call was recorded as an operator without a
derivative: laying out the gradients for tangents of other strides raised."""

from __future__ import annotations

import pytest
import torch

import lampwork


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
def test_gradients_beside_a_copied_number(dtype: torch.dtype) -> None:
    def program(x: torch.Tensor, number: float) -> tuple[torch.Tensor, torch.Tensor]:
        y = x * 2
        y[..., 0].copy_(number)
        z = x * 3
        z.copy_(number)
        return y, z

    compiled = lampwork.compile(program)
    for number in (float("nan"), -1e4, 2.0, 1 / 3):
        found = []
        for each in (program, compiled):
            x = torch.full((2, 3), 0.5, dtype=dtype, requires_grad=True)
            y, z = each(x, number)
            (y.sum() + z.sum()).backward()
            found.append((y.detach(), z.detach(), x.grad))
        torch.testing.assert_close(found[1], found[0], rtol=0, atol=0, equal_nan=True)
    assert not lampwork.stats(compiled)["fallbacks"]


def test_integers() -> None:
    def program(x: torch.Tensor, number: float, count: int) -> torch.Tensor:
        y = x.clone()
        y[0].copy_(number)
        y[1].copy_(count)
        return y

    compiled = lampwork.compile(program)
    for number, count in ((1.5, 3), (-2.7, 4), (100.9, -5)):
        for x in (torch.zeros(2, 2, dtype=torch.int32), torch.zeros(2, 2, dtype=torch.bool), torch.zeros(2, 2)):
            torch.testing.assert_close(compiled(x, number, count), program(x, number, count))
