"""A derivative that is zeros whatever comes back (`sgn`) was zeros where eager's engine does not come to it: no gradient."""

from __future__ import annotations

import math

import pytest
import torch

import lampwork

ZERO = {
    "sgn": torch.sgn, "sign": torch.sign, "floor": torch.floor, "round": torch.round, "trunc": torch.trunc,
    "ceil": torch.ceil, "heaviside": lambda x: x * 0, "chain": lambda x: torch.floor(torch.sgn(x)) + 1,
}  # fmt: skip


@pytest.mark.parametrize("name", ZERO)
@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_only_where_the_result_is_used(name, used):
    def program(x, y):
        return ZERO[name](x), y * 2

    found = []
    for function in (program, lampwork.compile(program, options={"cache": False})):
        x, y = torch.tensor([-0.5, 2.25], requires_grad=True), torch.ones(3, requires_grad=True)
        results = function(x, y)
        torch.autograd.backward([results[each].sum() for each in used])
        found.append((x.grad, y.grad))
    eager, ours = found
    for theirs, mine in zip(eager, ours, strict=True):
        assert (theirs is None) == (mine is None)
        assert theirs is None or torch.equal(theirs, mine)


@pytest.mark.parametrize("name", ["sgn", "floor", "nextafter"])
@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_beside_what_makes_something_of_zeros(name, used):
    """x / x of no gradient is none, and not 0 / 0."""

    def program(x):
        zeros = torch.nextafter(torch.ones_like(x), x) if name == "nextafter" else ZERO[name](x)
        return zeros, x / x

    found = []
    for function in (program, lampwork.compile(program, options={"cache": False})):
        x = torch.tensor([-0.5, 0.0, 2.25], requires_grad=True)
        results = function(x)
        torch.autograd.backward([results[each].sum() for each in used])
        found.append(x.grad)
    torch.testing.assert_close(found[1], found[0], equal_nan=True)


@pytest.mark.parametrize("used", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("after", [lambda y: y[::2], lambda y: y, lambda y: y.t() * 2], ids=["part", "same", "scaled"])
def test_zeros_alone_come_to_what_makes_something_of_them(after, used):
    """Zeros that stay zeros beside NaN, and those that do not: the gradients of a result beside them were left out."""

    def program(x, z):
        y = after(torch.asin(x))
        return y, y.sgn(), z * 2

    compiled = lampwork.compile(program, options={"cache": False})
    found = []
    for function in (program, compiled):
        x = torch.tensor([[1000.0, 0.5], [2.0, -3.0]], requires_grad=True)
        z = torch.ones(2, requires_grad=True)
        results = function(x, z)
        torch.autograd.backward([results[each].sum() for each in used])
        found.append((x.grad, z.grad))
    for theirs, ours in zip(*found):
        assert (theirs is None) == (ours is None)
        assert theirs is None or torch.equal(theirs.nan_to_num(7.0), ours.nan_to_num(7.0))
    by_eager = {each.diagnostic.id for each in lampwork.stats(compiled)["fallbacks"]}
    assert by_eager == ({"gradient-of-zeros"} if 1 in used and 0 not in used else set())


def test_functions_of_users_whose_gradient_is_constant():
    class Flat(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 1, x * 2

        @staticmethod
        def backward(ctx, one, other):
            return torch.full((2,), 7.0)

    def program(x, y):
        return (*Flat.apply(x), y * 2)

    for used in [(0,), (1,), (2,), (0, 2), (0, 1)]:
        found = []
        for function in (program, lampwork.compile(program, options={"cache": False})):
            x, y = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
            results = function(x, y)
            torch.autograd.backward([results[each].sum() for each in used])
            found.append(x.grad)
        assert (found[0] is None) == (found[1] is None) and (found[0] is None or torch.equal(*found)), used


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_zeros_that_a_derivative_makes_are_multiplied(used):
    """The derivative of `x ** 0` is zeros, which NaN makes NaN; a result beside it had the tangent that was asked for."""

    def program(x, factor):
        return (x * factor) ** 0, x.abs()

    found = []
    for function in (program, lampwork.compile(program, options={"cache": False})):
        x = torch.tensor([0.5, -1.0], requires_grad=True)
        results = function(x, torch.tensor([math.nan, 2.0]))
        torch.autograd.backward([results[each].sum() for each in used])
        found.append(x.grad)
    torch.testing.assert_close(found[1], found[0], equal_nan=True)
