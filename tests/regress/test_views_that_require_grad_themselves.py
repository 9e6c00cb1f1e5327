"""A view of an argument that the program has require grad, while the argument does not: what was returned required none."""

from __future__ import annotations

import pytest
import torch

import lampwork


def view(x):
    return x.view(-1).requires_grad_()


def item(x):
    y = x[0]
    y.requires_grad = True
    return y, x


def behind_a_break(x):
    with torch.inference_mode():
        y = x[0:1]
    print(end="")
    return y.requires_grad_()


@pytest.mark.parametrize("program", [view, item, behind_a_break])
def test_as_eager(program):
    compiled = lampwork.compile(program, options={"cache": False})

    def observed(function):
        x = torch.ones(2, 2)
        results = function(x)
        results = results if isinstance(results, tuple) else (results,)
        results[0].sum().backward()
        gradient = results[0].grad if results[0].is_leaf else None
        return [(each.requires_grad, each.is_leaf, each._is_view()) for each in (*results, x)], repr((gradient, x.grad))

    for _ in range(2):
        assert observed(compiled) == observed(program)
