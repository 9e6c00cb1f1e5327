"""Derivatives of normalisations where a gradient is infinite: eager's kernels on a CPU make NaN of most elements of the
row, and -inf or inf of some. Ours, whose sums are others, made infinities where eager made NaN."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import lampwork


def layer(x, weight, bias):
    return F.layer_norm(x, x.shape[-1:], weight.flatten()[: x.shape[-1]], bias.flatten()[: x.shape[-1]])


def groups(x, weight, bias):
    return F.group_norm(x, 2, weight, bias)


def channels(x, weight, bias):
    return F.group_norm(x, 4, weight, bias)


def batch(x, weight, bias):
    return F.batch_norm(x, None, None, weight, bias, True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(3, 4, 4), (3, 4, 2, 9)])
@pytest.mark.parametrize("norm", [layer, groups, channels, batch], ids=lambda each: each.__name__)
def test_as_eager(norm, shape, dtype):
    if norm is layer and shape[-1] > 4:
        shape = (*shape[:-1], 4)

    def program(x, weight, bias, gradient):
        return torch.autograd.grad(norm(x, weight, bias), (x, weight, bias), gradient)

    compiled = lampwork.compile(program)
    for seed in range(20):
        draw = torch.Generator().manual_seed(seed)
        x, gradient = (torch.randn(shape, generator=draw) for _ in range(2))
        weight, bias = (torch.randn(4, generator=draw).to(dtype).requires_grad_() for _ in range(2))
        x = (x + torch.randn(shape[0], *[1] * (len(shape) - 1), generator=draw)).to(dtype).requires_grad_()
        extreme = torch.randint(x.numel(), (2,), generator=draw)
        gradient.view(-1)[extreme] = torch.tensor([math.inf, -math.inf if seed % 2 else math.inf])
        arguments = (x, weight, bias, gradient.to(dtype))
        for result, expected in zip(compiled(*arguments), program(*arguments), strict=True):
            torch.testing.assert_close(result, expected, equal_nan=True, rtol=0.02, atol=0.05)
