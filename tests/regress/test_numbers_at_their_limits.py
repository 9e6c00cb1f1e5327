"""Regression: numbers that limit an operator (a threshold, a margin, an epsilon) were compared as Python's doubles where
eager's kernel holds them as elements: what lies between the two was taken for outside, forward or backward."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork

FUNCTIONS = {
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "threshold": lambda x, limit: F.threshold(x, limit, 0.7),
    "hardtanh": lambda x, limit: F.hardtanh(x, -limit, limit),
    "clamp": lambda x, limit: x.clamp(-limit, limit),
    "softplus": lambda x, limit: F.softplus(x, 1.0, limit),
    "smooth_l1_loss": lambda x, limit: F.smooth_l1_loss(x, torch.zeros_like(x), beta=limit, reduction="none"),
    "huber_loss": lambda x, limit: F.huber_loss(x, torch.zeros_like(x), delta=limit, reduction="none"),
    "logit": lambda x, limit: torch.logit(x.abs(), limit),
    "greater": lambda x, limit: torch.where(x > limit, x * 2, x),
    "equal": lambda x, limit: torch.where(x == limit, x * 2, x),
    "less or equal": lambda x, limit: torch.where(x <= limit, x * 2, x),
    "hinge_embedding_loss": lambda x, limit: F.hinge_embedding_loss(
        x.abs(), -torch.ones_like(x), margin=limit, reduction="none"
    ),
}


def around(limit: float, dtype: torch.dtype) -> torch.Tensor:
    """The numbers of `dtype` nearest to `limit` and to 1 - `limit`, and their negatives."""
    found = []
    for middle in (limit, 1 - limit):
        for end in (-9.0, 9.0):
            each = torch.tensor(middle, dtype=dtype)
            found.append(each)
            for _ in range(3):
                each = torch.nextafter(each, torch.tensor(end, dtype=dtype))
                found.append(each)
    near = torch.stack(found)
    return torch.cat([near, -near])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_both_sides_of_the_limit(name: str, dtype: torch.dtype) -> None:
    function = FUNCTIONS[name]
    close = {torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float32: 1e-5}[dtype]
    for limit in (0.3, 0.1, 1 / 3, 0.001):
        x = around(limit, dtype)
        results = []
        for run in (function, lampwork.compile(function)):
            leaf = x.clone().requires_grad_()
            result = run(leaf, limit)
            result.sum().backward()
            results.append((result.detach(), leaf.grad))
        torch.testing.assert_close(results[1], results[0], rtol=close, atol=close, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.int64], ids=str)
def test_whole_numbers(dtype: torch.dtype) -> None:
    """The limit is an element of what is computed, a float, not of what is read."""
    x = torch.tensor([0, 1]).to(dtype)
    torch.testing.assert_close(lampwork.compile(lambda x: torch.logit(x, 0.2))(x), torch.logit(x, 0.2))
