"""What eager's history has saved may be written to where nobody asks for the gradient that needs it."""

from __future__ import annotations

import sys

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
