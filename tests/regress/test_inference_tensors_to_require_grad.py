"""A tensor made in inference mode that is to require grad, outside of that mode: the error came when the program was over,
where no handler of it saw it, and in inference mode, where eager allows it, it came as well."""

from __future__ import annotations

import pytest
import torch

import lampwork


def method(y):
    try:
        y.requires_grad_()
    except RuntimeError as error:
        return str(error)
    return y


def attribute(y):
    try:
        y.requires_grad = True
    except RuntimeError as error:
        return str(error)
    return y


def view(y):
    try:
        return y.view(-1).requires_grad_()
    except RuntimeError as error:
        return str(error)


def not_caught(y):
    return y.requires_grad_() + 1


def in_the_mode(y):
    with torch.inference_mode():
        y.requires_grad_()
    return y


def off(y):
    y.requires_grad_(requires_grad=False)
    y.requires_grad = False
    return y + 1


def made_inside(y):
    with torch.inference_mode():
        z = y * 1
    try:
        z.requires_grad_()
    except RuntimeError as error:
        return str(error)
    return z


def made_before_a_break(y):
    with torch.inference_mode():
        z = y * 1
    print(end="")
    return method(z)


@pytest.mark.parametrize("inference", [True, False])
@pytest.mark.parametrize("program", [
    method, attribute, view, not_caught, in_the_mode, off, made_inside, made_before_a_break,
])  # fmt: skip
def test_as_eager(program, inference):
    compiled = lampwork.compile(program, options={"cache": False})

    def observed(function):
        with torch.inference_mode(inference):
            y = torch.ones(2)
        try:
            found = function(y)
        except RuntimeError as error:
            found = str(error)
        return (found.requires_grad, found.is_leaf) if isinstance(found, torch.Tensor) else found, y.requires_grad

    for _ in range(2):
        assert observed(compiled) == observed(program)
