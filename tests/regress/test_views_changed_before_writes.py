"""Writes through, or beside, a view whose shape the program changed in place: the gradient went through the view as it had
been before, and was that of other elements."""

from __future__ import annotations

import pytest
import torch

import lampwork


def turned(y):
    view = y[:]
    view.t_()
    view.sin_()
    return y


def clamped(y):
    view = y.view(3, -1)
    view.t_().clamp_(-1, 1)
    return y


def below(y):
    view = y[1:]
    view.t_()
    view[1:].exp_()
    return y * view.sum()


def beside(y):
    view = y[:]
    view.t_()
    y.sin_()
    return y * view


def wider(y):
    view = y[1:]
    view.unsqueeze_(0)
    view.mul_(y[:2].detach().clone())
    return y


@pytest.mark.parametrize("change", [turned, clamped, below, beside, wider], ids=lambda each: each.__name__)
def test_gradients(change):
    def program(x):
        return change(x * 1.5)

    compiled = lampwork.compile(program, options={"cache": False})
    for seed in range(3):
        draw = torch.Generator().manual_seed(seed)
        x, gradient = (torch.randn(3, 3, generator=draw) for _ in range(2))
        found = []
        for function in (program, compiled):
            leaf = x.clone().requires_grad_()
            result = function(leaf)
            result.backward(gradient)
            found.append((result.detach(), leaf.grad))
        torch.testing.assert_close(found[1], found[0])
