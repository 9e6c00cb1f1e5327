"""`x.data = ...` of another size or type, where `x` requires grad: gradients were those of what the caller had passed."""

from __future__ import annotations

import pytest
import torch

import lampwork


def narrower(x):
    x.data = x.data[:1]
    return x * 2


def wider(x):
    x.data = x.data.double()
    return x * 2


def turned(x):
    x.data = x.data.view(2, 1)
    return x * 2


@pytest.mark.parametrize("program", [narrower, wider, turned])
@pytest.mark.parametrize("dynamic", [None, True])
def test_leaves(program, dynamic):
    compiled = lampwork.compile(program, dynamic=dynamic)
    for _ in range(2):
        x, y = (torch.ones(2, requires_grad=True) for _ in range(2))
        for function, each in ((program, x), (compiled, y)):
            function(each).sum().backward()
        assert y.dtype == x.dtype and y.grad.dtype == x.grad.dtype and torch.equal(y.grad, x.grad)


def test_a_layer_that_grows():
    layer = torch.nn.Linear(2, 2)

    def program(x):
        layer.weight.data = torch.cat([layer.weight.data, torch.ones(1, 2)])
        layer.bias.data = torch.zeros(len(layer.weight))
        return layer(x)

    compiled = lampwork.compile(program)
    for rows in (3, 4):
        compiled(torch.ones(1, 2)).sum().backward()
        assert layer.weight.grad.shape == (rows, 2)
        layer.zero_grad()
