"""Inputs that a program turns in place, or gives other memory: derivatives read them as they were afterwards."""

from __future__ import annotations

import pytest
import torch

import lampwork


def turned(x, w):
    x.transpose_(0, 1)
    return x @ w


def turned_and_read_twice(x, w):
    x.t_()
    return (x.sin() @ w) @ x


def turned_beside_a_view(x, w):
    flat = x.view(-1)
    x.t_()
    return (x @ w) * flat.view(2, 2)


def of_other_memory(x, w):
    before = x.detach()
    x.data = x + 1
    return before @ w


@pytest.mark.parametrize("program", [turned, turned_and_read_twice, turned_beside_a_view, of_other_memory])
def test_gradients(program):
    compiled = lampwork.compile(program, options={"cache": False})
    tangent = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    for _ in range(2):
        found = []
        for function in (program, compiled):
            x, w = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.0, 5.0], [7.0, 8.0]], requires_grad=True)
            function(x, w).backward(tangent)
            found.append((w.grad, x, x.stride()))
        torch.testing.assert_close(found[1], found[0])
    assert not lampwork.stats(compiled)["fallbacks"]


def test_second_derivatives_are_refused():
    """Eager would compute them from what the input is afterwards."""
    compiled = lampwork.compile(turned, options={"cache": False})
    x, w = torch.ones(2, 2), torch.ones(2, 2, requires_grad=True)
    (gradient,) = torch.autograd.grad(compiled(x, w).square().sum(), w, create_graph=True)
    with pytest.raises(RuntimeError, match="double-backward"):
        gradient.sum().backward()
