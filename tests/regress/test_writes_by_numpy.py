"""Regression: what a program wrote through `x.numpy()` raised the version of `x`, which numpy does not: a backward pass
that had saved `x` raised."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import lampwork


def adds(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    array = x.numpy()
    array += 1
    return x * 1


def sets_an_element(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    y = x * w
    x.detach().numpy()[0] = 7.0
    return y


@pytest.mark.parametrize("function", [adds, sets_an_element])
def test_autograd_is_not_told(function: Callable) -> None:
    compiled = lampwork.compile(function)
    for size in (2, 3):
        found = []
        for each in (function, compiled):
            w, x = torch.ones(size, requires_grad=True), torch.ones(size)
            loss = (w * x).sum() + each(x, w).sum()
            loss.backward()
            assert w.grad is not None
            found.append((w.grad.tolist(), x.tolist(), loss.item(), x._version))
        assert found[0] == found[1]
