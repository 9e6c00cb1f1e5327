"""Hooks on tensors that are views, or are written between two hooks: some were never called."""

from __future__ import annotations

import pytest
import torch

import lampwork


def between_writes(x):
    y = x * 5
    y.register_hook(lambda gradient: gradient * 2)
    y.mul_(3)
    y.register_hook(lambda gradient: gradient + 10)
    return y


def removed_before_a_write(x):
    y = x * 5
    handle = y.register_hook(lambda gradient: gradient * 2)
    y.mul_(3)
    y.register_hook(lambda gradient: gradient + 10)
    handle.remove()
    return y.sin()


def written_and_differentiated_inside(x):
    y = x * 5
    y.register_hook(lambda gradient: gradient * 2)
    y.mul_(3)
    y.register_hook(lambda gradient: gradient + 10)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    return x * gradient


def view_of_an_input(x):
    view = x.view_as(x)
    view.register_hook(lambda gradient: gradient * 2)
    return view[0] * 1, view


def view_beside_its_base(x):
    y = x * 5
    view = y[1:]
    view.register_hook(lambda gradient: gradient * 2)
    return y, view


def view_of_what_has_a_hook(x):
    y = x * 5
    y.register_hook(lambda gradient: gradient * 2)
    return y, y[1:]


def node_of_a_view(x):
    y = x * 5
    view = y.view(2, 2)
    view.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] * 2,))
    return y, view[0]


PROGRAMS = [
    between_writes, removed_before_a_write, written_and_differentiated_inside, view_of_an_input, view_beside_its_base,
    view_of_what_has_a_hook, node_of_a_view,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_hook_is_called(program):
    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        gradients = []
        for function in (program, compiled):
            x = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
            results = function(x)
            results = results if isinstance(results, tuple) else (results,)
            sum(each.sum() for each in results).backward()
            gradients.append(x.grad)
        torch.testing.assert_close(gradients[1], gradients[0])


def test_a_counter_beside_a_hook_that_has_effects():
    """The graph breaks at the hook for any number. That the program has no break for a number was taken for better,
    though nothing of it was differentiated, and it ran eagerly: an entry for each number."""
    seen, count = [], [0]

    def program(x):
        count[0] += 1
        y = x * 2
        y.register_hook(lambda gradient: seen.append(gradient.sum().item()))
        return y * 3

    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(12):
        x = torch.ones(3, requires_grad=True)
        compiled(x).sum().backward()
        assert x.grad.tolist() == [6.0, 6.0, 6.0]
    assert count == [12] and seen == [9.0] * 12
    stats = lampwork.stats(compiled)
    assert stats["captures"] <= 4 and not stats["fallbacks"]
