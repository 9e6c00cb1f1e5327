"""A backward method or a hook that raises for some gradients. What it is assumed to do was asserted among the nodes of the
backward half, which keeps those that its gradients need: nothing raised, and the usual side was always taken."""

from __future__ import annotations

import warnings

import pytest
import torch

import lampwork


class Checked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        if gradient.max() > 5:
            raise ValueError("the gradient is too large")
        return gradient


class Asserted(Checked):
    @staticmethod
    def backward(ctx, gradient):
        assert gradient.sum().item() < 20, "the gradient is too large"
        return gradient * 2


class Warns(Checked):
    @staticmethod
    def backward(ctx, gradient):
        if (gradient > 5).any():
            warnings.warn("the gradient is large", stacklevel=1)
            gradient = gradient.clamp(max=5)
        return gradient


def hooked(x):
    def check(gradient):
        if gradient.isnan().any() or gradient.max() > 5:
            raise ValueError("the gradient is too large")

    result = x * 2
    result.register_hook(check)
    return result.sin()


PROGRAMS = [lambda x: Checked.apply(x).sin(), lambda x: Asserted.apply(x), lambda x: Warns.apply(x) * 2, hooked]


@pytest.mark.filterwarnings("ignore:the gradient is large")
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_eager(program):
    compiled = lampwork.compile(lambda x: program(x), options={"cache": False})

    def outcome(run, scale):
        x = torch.zeros(3, requires_grad=True)
        try:
            run(x).backward(torch.full((3,), scale))
        except (ValueError, AssertionError) as error:
            return type(error), None if x.grad is None else x.grad.tolist()
        return None, x.grad.tolist()

    for scale in (1.0, 9.0, 2.0):
        assert outcome(compiled, scale) == outcome(program, scale)
