"""`detach_()` refuses views. A view of the program's own, whose base did not outlive the refused call, was detached all the
same, as was an argument that is a view of a tensor outside."""

from __future__ import annotations

import pytest
import torch

import lampwork


def argument(x):
    return x.detach_()


def argument_by_the_function(x):
    return torch.detach_(x)


def item(x):
    y = (x * 2)[0]
    return y.detach_()


def part(x):
    u = (x * 1)[:2]
    u.detach_()
    return u


def piece(x):
    return (x * 1).chunk(2)[0].detach_()


def reshaped(x):
    return (x * 1).view(4, 1).detach_()


def part_of_detached(x):
    return x.detach()[0:1].detach_()


def caught(x):
    y = (x * 1).unbind(0)[0]
    try:
        y.detach_()
    except RuntimeError as error:
        return str(error)
    return y


def no_view(x):
    return (x * 1).detach_(), (x * 1)[:1].detach().detach_(), (x * 1)[:1].data.detach_()


def gradient(x):
    x.grad = torch.ones_like(x)
    x.grad.detach_()
    return x.grad


@pytest.mark.parametrize("make", [
    lambda: torch.ones(4), lambda: torch.ones(4).view(2, 2), lambda: torch.ones(4, requires_grad=True),
    lambda: torch.ones(2, 2, requires_grad=True)[0:2], lambda: torch.ones(4).view(2, 2).detach(),
], ids=["plain", "a view", "requires grad", "a view with a history", "detached"])  # fmt: skip
@pytest.mark.parametrize("program", [
    argument, argument_by_the_function, item, part, piece, reshaped, part_of_detached, caught, no_view, gradient,
])  # fmt: skip
def test_as_eager(program, make):
    compiled = lampwork.compile(program, options={"cache": False})

    def observed(function, x):
        try:
            return repr(function(x)), x.requires_grad, x.is_leaf
        except RuntimeError as error:
            return str(error), x.requires_grad, x.is_leaf

    for _ in range(2):
        assert observed(compiled, make()) == observed(program, make())


def test_a_view_after_a_tensor_that_is_none():
    compiled = lampwork.compile(argument, options={"cache": False})
    compiled(torch.ones(4))
    with pytest.raises(RuntimeError, match="Can't detach views"):
        compiled(torch.ones(8)[:4])
    assert compiled(torch.ones(4)).is_leaf
