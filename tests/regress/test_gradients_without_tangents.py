"""A gradient that backward nodes make of nothing, as `sgn`'s is, was None where another result had no tangent: what
reaches an input was told by what its gradient is computed from, where eager's engine runs all nodes in between."""

from __future__ import annotations

import pytest
import torch

import lampwork


class OneSided(torch.autograd.Function):
    """Its second argument gets no gradient."""

    @staticmethod
    def forward(ctx, x, y):
        return x * y

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2, None


def of_sign(x, y):
    return x.sgn(), x * y


def of_rounding(x, y):
    return x.round() + x.floor(), (x * y).sin()


def of_a_function(x, y):
    return OneSided.apply(x * 2, y * 3), x * y


def of_views(x, y):
    first, second = (x * y).chunk(2)
    return first.sgn(), second * x[:2]


def of_itself(x, y):
    made = torch.sign(x)
    return made, torch.equal(made, x * y), x.exp()


def of_a_count(x, y):
    """The derivative of a norm that counts elements defines no gradient."""
    return torch.linalg.vector_norm(x * y, 0), -x


def of_a_count_of_an_input(x, y):
    return torch.linalg.vector_norm(x, 0), -x


def of_a_count_and_more(x, y):
    made = x * y
    return torch.linalg.vector_norm(made, 0, -1) + x.sum(), made


@pytest.mark.parametrize("function", [
    of_sign, of_rounding, of_a_function, of_views, of_itself, of_a_count, of_a_count_of_an_input, of_a_count_and_more,
])  # fmt: skip
@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("history", [None, torch.exp, lambda x: x.view(4)], ids=["leaf", "computed", "view"])
def test_is_there_as_in_eager(function, used, history):
    def gradients(run):
        leaves = [torch.tensor([0.5, -0.25, 1.5, -2.0]).mul(k).requires_grad_() for k in (1, 2)]
        given = [history(each) for each in leaves] if history else leaves
        for each in given:
            each.retain_grad()
        results = [each for each in run(*given) if isinstance(each, torch.Tensor)]
        sum(results[index].sum() for index in used).backward()
        return *(each.grad for each in leaves), *(each.grad for each in given)

    compiled = lampwork.compile(function, options={"cache": False})
    for found, expected in zip(gradients(compiled), gradients(function), strict=True):
        assert (found is None) == (expected is None)
        if expected is not None:
            torch.testing.assert_close(found, expected)
