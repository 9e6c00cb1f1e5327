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


def test_the_gradient_of_what_lies_beyond_the_view_that_a_view_was_taken_of():
    """After a write, eager's goes by places in the memory of the whole."""

    def program(x):
        y = x * 1.5
        part = y[:, 1:]
        places = part.as_strided((2, 3), (1, part.shape[-1]))  # among them are some of the first column
        y[..., 0] = x.mean()
        return (part.detach() * places.sum()).sum() + y.sum()

    compiled = lampwork.compile(program, options={"cache": False})
    for shape in ((4, 6), (4, 6), (5, 7), (3, 8)):
        found = []
        for function in (program, compiled):
            x = torch.arange(float(shape[0] * shape[1])).view(shape).requires_grad_()
            function(x).backward()
            found.append(x.grad)
        torch.testing.assert_close(found[1], found[0])
