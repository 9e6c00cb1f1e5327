"""Eager's engine raises where it comes to an operator without a derivative, also where that leads to no input."""

from __future__ import annotations

import pytest
import torch

import lampwork

PROGRAMS = {
    "result": lambda x: (x.detach() * 2).floor_divide_(x),
    "factor": lambda x: (x.detach() * 2).floor_divide_(x) * x,
    "view": lambda x: (x.detach() * 2).view(2, 1).floor_divide_(x.view(2, 1)) * x,
    "view without elements": lambda x: torch.cov(x.detach()).floor_divide_(x[0]) * x,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_error_is_eagers(name):
    for function in (PROGRAMS[name], lampwork.compile(PROGRAMS[name])):
        x = torch.tensor([-0.25, 0.25], requires_grad=True)
        result = function(x)
        assert result.requires_grad
        with pytest.raises(RuntimeError, match="derivative for aten::floor_divide_ is not implemented"):
            result.sum().backward()


def test_a_view_that_another_operator_writes_to_is_differentiated():
    def program(x):
        y = x.detach() * 2
        y.view(2, 1).mul_(x.view(2, 1))
        return y * x

    compiled = lampwork.compile(program)
    for function in (program, compiled):
        x = torch.tensor([-0.25, 0.25], requires_grad=True)
        function(x).sum().backward()
        torch.testing.assert_close(x.grad, 4 * x.detach() * x.detach().abs() * x.detach().sign())
    assert not lampwork.stats(compiled)["fallbacks"]
