"""Vendor operators read biases as rows in memory, whatever the strides say: an expanded bias was read outside of it."""

from __future__ import annotations

import pytest
import torch

import lampwork


@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["linear", "convolution"])
def test_expanded_bias(kind, dtype, freeze):
    if kind == "linear":
        layer, x = torch.nn.Linear(300, 800), torch.randn(40, 300)
    else:
        layer, x = torch.nn.Conv2d(3, 8, 3), torch.randn(1, 3, 8, 8)
    layer, x = layer.to(dtype).eval(), x.to(dtype)
    assert layer.bias is not None
    layer.bias.data = torch.tensor([0.5], dtype=dtype).expand(layer.bias.shape)
    compiled = lampwork.compile(layer, options={"cache": False, "freeze": freeze})
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(x), layer(x), rtol=2e-2 if dtype == torch.bfloat16 else 1e-4, atol=1e-2)
