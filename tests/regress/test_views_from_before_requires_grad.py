"""What shares the memory of an argument that the program itself has require grad: a tensor detached from it required grad
as well, and a view taken before had a history, since both were made of the argument when it already required grad."""

from __future__ import annotations

import pytest
import torch

import lampwork


def detached(x):
    c = x.detach()
    x.requires_grad_()
    return c


def detached_and_itself(x):
    c = x.detach()
    x.requires_grad_()
    return c, x


def detached_afterwards(x):
    x.requires_grad_()
    return x.detach()[1:]


def detached_beside_a_pass(x):
    c = x.detach()
    x.requires_grad_()
    (x * 2).sum().backward()
    return c


def detached_beside_a_change_of_shape(x):
    c = x.detach()
    if not x.requires_grad:
        x.t_()
    x.requires_grad_()
    return c


def before_and_computed(x):
    y = x[0]
    d = x.detach()
    v = d.view(-1)
    x.requires_grad_()
    return y, d, v, x * 2


def before_and_after(x):
    y = x.t()[1:]
    x.requires_grad_()
    return y, x[1]


def before_and_without_gradients(x):
    y = x.chunk(2)[1]
    x.requires_grad_()
    with torch.no_grad():
        z = x[1]
    return y, z, x[0], x * 3


def off_and_on(x):
    x.requires_grad_(False)
    y, d = x[0], x.detach()
    x.requires_grad_()
    return y, d, x[1]


def off_and_on_and_computed(x):
    x.requires_grad_(False)
    y = x[0]
    x.requires_grad_()
    return y, x * 2


def _observed(function, x):
    results = function(x)
    results = results if isinstance(results, tuple) else (results,)
    seen = [(each.requires_grad, each.is_leaf, each._base is x, each.tolist()) for each in results]
    for each in results:
        if each.requires_grad:
            each.sum().backward()
            seen.append(None if x.grad is None else x.grad.tolist())
    for each in results:
        try:
            each.mul_(2)
            seen.append((each.requires_grad, x.tolist()))
        except RuntimeError as error:
            seen.append(str(error))
    return seen, x.requires_grad, x.is_leaf


@pytest.mark.parametrize("make", [
    lambda: torch.ones(2, 2), lambda: torch.ones(4).view(2, 2), lambda: torch.ones(2, 2, requires_grad=True),
], ids=["plain", "a view", "requires grad"])  # fmt: skip
@pytest.mark.parametrize("program", [
    detached, detached_and_itself, detached_afterwards, detached_beside_a_pass, detached_beside_a_change_of_shape,
    before_and_computed, before_and_after, before_and_without_gradients, off_and_on, off_and_on_and_computed,
])  # fmt: skip
def test_they_are_as_they_were(program, make):
    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(3):
        assert _observed(compiled, make()) == _observed(program, make())
