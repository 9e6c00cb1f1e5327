"""What eager's history has saved may be written to where nobody asks for the gradient that needs it."""

from __future__ import annotations

import sys

import pytest
import torch

import lampwork


def gradients_of(function, *values):
    given = [torch.tensor(each).requires_grad_() for each in values]
    results = function(*given)
    torch.autograd.backward(results, [torch.ones_like(each) for each in results])
    return [None if each.grad is None else each.grad.tolist() for each in given]


def test_a_result_of_an_earlier_part_that_nobody_differentiates():
    def program(x):
        saved = x.sigmoid()
        sys.getsizeof(x)  # a break
        saved.clamp_(0, 1)
        return (x * 2,)

    compiled = lampwork.compile(program, options={"cache": False})
    assert gradients_of(compiled, [0.5, -0.25]) == gradients_of(program, [0.5, -0.25])


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("turn", [lambda x: x, lambda x: x.t()], ids=["rows", "columns"])
def test_a_power_of_a_number_that_varies_is_saved_as_it_is_returned(turn, dynamic):
    """Of a part one element wide its strides are others than those of the operator that takes two tensors."""

    def program(x, number):
        return number ** x.chunk(2, 1)[1]

    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    for number in (3.25, 2.5, 1.5):
        leaf = torch.rand(2, 2).requires_grad_()
        result = compiled(turn(leaf), number)
        assert result.stride() == program(turn(leaf), number).stride()
        with torch.no_grad():
            result.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()
