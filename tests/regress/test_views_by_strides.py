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


def test_of_an_expanded_leaf_that_varies():
    """Strides of gradients are found on fakes, whose storages have the size that the input's has by now."""
    program = lambda x: torch.nn.functional.elu(x.as_strided((2, 1, 1, 2), (1, 7, 7, 1)))
    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    found = []
    for function in (program, compiled):
        leaf = torch.tensor([0.5, 9.0, 9.0]).as_strided((1,), (2,), 0).requires_grad_()
        result = function(leaf.expand(2))
        result.sum().backward()
        found.append((result, leaf.grad, leaf.grad.stride()))
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])
    assert found[0][2] == found[1][2] and not lampwork.stats(compiled)["fallbacks"]


def test_beyond_a_result_that_varies():
    program = lambda x, y: (x * 2).as_strided((2, 2), (1, 1)) @ y
    compiled = lampwork.compile(program, options={"cache": False})
    y = torch.ones(2, 1)
    for shape in ((7, 13), (0, 5), (3, 5), (3, 0), (2, 2), (1, 2)):
        x = torch.ones(shape)
        try:
            expected = program(x, y)
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match="out of bounds") as raised:
                compiled(x, y)
            assert str(raised.value) == str(error)
        else:
            assert torch.equal(compiled(x, y), expected)
