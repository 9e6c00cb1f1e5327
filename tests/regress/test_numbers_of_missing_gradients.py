"""Where several results have one element, what a missing gradient masks was computed where it was read, without the mask:
the gradient of the others was what lies in memory that nobody wrote."""

from __future__ import annotations

import pytest
import torch

import lampwork


def program(x):
    ratio = x / x
    return x, torch.cumulative_trapezoid(x), ratio


def longer(x):
    ratio = x / x
    scaled = (x / ratio).sin()
    return x.tanh() / x, (x[1:] - x[:-1]).exp().cumsum(0), scaled


@pytest.mark.parametrize("function", [program, longer])
def test_gradients(function):
    compiled = lampwork.compile(function, options={"cache": False})
    for used in ([1], [2], [0, 1]):
        gradients = []
        for each in (function, compiled):
            x = torch.tensor([-0.5], requires_grad=True)
            results = each(x)
            del [torch.full((1,), torch.nan) for _ in range(64)][:]  # what new memory holds
            roots = [results[place] for place in used]
            gradients.append(torch.autograd.grad(roots, x, [torch.full_like(root, 0.3) for root in roots])[0])
        torch.testing.assert_close(*gradients)
