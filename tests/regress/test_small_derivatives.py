"""Derivatives of `elu` far below 0 were products of a power of e first, of which few digits are left there."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork

ACTIVATIONS = {"elu": lambda x: F.elu(x, 0.7), "selu": F.selu, "celu": lambda x: F.celu(x, 0.9)}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_as_eager(name):
    gradients = []
    for function in (ACTIVATIONS[name], lampwork.compile(ACTIVATIONS[name])):
        x = torch.linspace(-102, -86, 100).requires_grad_()
        function(x).backward(torch.linspace(700, 3000, 100))
        gradients.append(x.grad)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-5, atol=1e-43)
