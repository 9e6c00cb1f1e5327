"""A `torch.autograd.Function` with `setup_context` was given the arguments without the defaults of its forward: capture
saw an exception that eager does not raise, and the call ran eagerly."""

from __future__ import annotations

import pytest
import torch

import lampwork


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(x, factor=2.0, offset=(1, 3)):
        return x * factor + sum(offset)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.factor, offset = inputs
        ctx.count = len(offset)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor * ctx.count, None, None


@pytest.mark.parametrize("args", [(), (3.0,), (3.0, (1, 2, 3))])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_defaults(args, requires_grad):
    def step(x):
        return Scaled.apply(x, *args)

    compiled = lampwork.compile(step)
    found = []
    for function in (step, compiled):
        x = torch.arange(3.0, requires_grad=requires_grad)
        result = function(x)
        if requires_grad:
            result.sum().backward()
        found.append((result.detach(), x.grad))
    torch.testing.assert_close(*found)
    assert not lampwork.stats(compiled)["fallbacks"] and not lampwork.stats(compiled)["breaks"]


def test_defaults_that_change():
    def forward(x, factor=2.0):
        return x * factor

    class Changing(torch.autograd.Function):
        setup_context = staticmethod(lambda ctx, inputs, output: None)

    Changing.forward = staticmethod(forward)
    compiled = lampwork.compile(lambda x: Changing.apply(x))
    x = torch.ones(2)
    assert compiled(x)[0] == 2
    forward.__defaults__ = (5.0,)
    assert compiled(x)[0] == 5
