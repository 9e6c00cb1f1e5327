"""Leaves that require grad since the program asked for it, and that it lets go of: speech models mark their input so
for checkpoints, gradient penalties differentiate with respect to one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import lampwork


def marked_view(layer, x):
    h = x[:, None]
    h.requires_grad = True
    return layer(h).relu()


def marked(layer, x):
    h = x.mul(2).requires_grad_()
    return layer(h).pow(2), h.detach()


def penalty(layer, x):
    h = x.mul(0.5).requires_grad_()
    (slope,) = torch.autograd.grad(layer(h).tanh().sum(), h, create_graph=True)
    return (slope.norm(2, dim=-1) - 1).square().mean()


def beside_what_depends_on_it_alone(layer, x):
    h = x.mul(2).requires_grad_()
    return h.sin(), layer(h)


def returned(layer, x):
    h = x.mul(2).requires_grad_()
    return layer(h), h


def returned_in_part(layer, x):
    h = x.mul(2).requires_grad_()
    return layer(h).sum(), h[1:]


def under_a_hook(layer, x):
    h = x.mul(2).requires_grad_()
    h.register_hook(lambda gradient: layer.seen.append(gradient.sum().item()))
    return layer(h)


def stored(layer, x):
    layer.kept = x.mul(2).requires_grad_()
    return layer(layer.kept)


def _told(function, root):
    """All that the caller can tell of a call and of the backward pass from one of its results."""
    torch.manual_seed(0)
    layer = nn.Linear(6, 4)
    layer.seen = []
    results = function(layer, torch.randn(5, 6))
    results = results if isinstance(results, tuple) else (results,)
    [each for each in results if each.grad_fn is not None][root].sum().backward()
    tensors = [*results, *(each._base for each in results), *layer.parameters(), layer.__dict__.get("kept")]
    return [
        each if each is None else (each.detach(), each.requires_grad, each.is_leaf, each.grad if each.is_leaf else None)
        for each in tensors
    ] + layer.seen


@pytest.mark.parametrize("root", [0, -1])
@pytest.mark.parametrize(
    "program, is_differentiated",
    [(marked_view, True), (marked, True), (penalty, True), (beside_what_depends_on_it_alone, True), (returned, False),
     (returned_in_part, False), (under_a_hook, False), (stored, False)],
)  # fmt: skip
def test_as_eager(program, is_differentiated, root):
    compiled = lampwork.compile(program)
    torch.testing.assert_close(_told(compiled, root), _told(program, root))
    assert bool(lampwork.stats(compiled)["fallbacks"]) is not is_differentiated
