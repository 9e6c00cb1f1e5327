"""Views by strides, of a view: elements that this has not got a gradient, through the tensor that both are views of."""

from __future__ import annotations

import pytest
import torch

import lampwork


def explicit(x):
    part = (x * 1).chunk(2, 1)[0]
    return part, part.as_strided((2, 2), (2, 1), part.storage_offset())


def implicit(x):
    part = (x * 1).chunk(2, 1)[0]
    return part, part.as_strided((2, 2), (2, 1))


def of_an_input(x):
    part = x.chunk(2, 1)[0]
    return part, part.as_strided((2, 2), (2, 1), 0)


def of_the_whole(x):
    whole = x * 1
    return whole, whole.as_strided((2, 2), (2, 1), 0)[0]


@pytest.mark.parametrize("program", [explicit, implicit, of_an_input, of_the_whole])
def test_elements_outside_of_a_view_get_no_gradient(program):
    gradients = []
    for function in (program, lampwork.compile(program, options={"cache": False})):
        leaf = torch.arange(12.0).view(2, 6).requires_grad_()
        results = function(leaf)
        torch.autograd.backward(results, [torch.arange(1.0, 1 + each.numel()).view(each.shape) for each in results])
        gradients.append(leaf.grad)
    assert torch.equal(*gradients)


def test_numbers_that_are_expanded_have_strides_of_0():
    """Whatever the size: the one that a dimension has is no reason to call its number a stride."""
    program = lambda x, y: x.expand_as(y)
    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    for shape in ((1, 1), (2, 1), (3, 2), (1,)):
        y = torch.ones(shape)
        assert compiled(torch.tensor(1.0), y).stride() == program(torch.tensor(1.0), y).stride() == (0,) * y.dim()
