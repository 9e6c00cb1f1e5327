"""Training with fake quantization, as users write it: operators without a meta kernel broke the graph."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import lampwork


def by_tensor(weight: torch.Tensor) -> torch.Tensor:
    scale = weight.detach().abs().max() / 127
    return torch.fake_quantize_per_tensor_affine(weight, scale, torch.zeros(1, dtype=torch.int32), -128, 127)


def by_numbers(weight: torch.Tensor) -> torch.Tensor:
    return torch.fake_quantize_per_tensor_affine(weight, 0.01, 3, -128, 127)


def by_channel(weight: torch.Tensor) -> torch.Tensor:
    scale = weight.detach().abs().amax(1) / 127
    zeros = torch.zeros(weight.shape[0], dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(weight, scale, zeros, 0, -128, 127)


@pytest.mark.parametrize("quantized", [by_tensor, by_numbers, by_channel])
def test_a_layer_with_rounded_weights(quantized):
    class Layer(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.linear(x, quantized(self.weight), self.bias)

    torch.manual_seed(0)
    eager = nn.Sequential(Layer(6, 8), nn.ReLU(), Layer(8, 3))
    ours = copy.deepcopy(eager)
    compiled = lampwork.compile(ours, fullgraph=True, options={"cache": False})
    for _ in range(3):
        x = torch.randn(5, 6)
        for model, run in ((eager, eager), (ours, compiled)):
            model.zero_grad()
            run(x).square().mean().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.05 * parameter.grad
    for one, other in zip(ours.parameters(), eager.parameters()):
        torch.testing.assert_close(one, other)
        torch.testing.assert_close(one.grad, other.grad)


def test_wrong_scales_raise_as_in_eager():
    compiled = lampwork.compile(torch.fake_quantize_per_channel_affine, options={"cache": False})
    for run in (torch.fake_quantize_per_channel_affine, compiled):
        with pytest.raises(RuntimeError):
            run(torch.ones(3, 4), torch.ones(2), torch.zeros(2, dtype=torch.int32), 0, -128, 127)
