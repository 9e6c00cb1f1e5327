"""Derivatives whose formulas look at what plain tensors hold, and do not for tensors of other classes, as fakes are."""

from __future__ import annotations

import itertools

import pytest
import torch

import lampwork

INFINITY, NAN = float("inf"), float("nan")
INPUTS = {
    "one zero": [[1.0, 2, 3], [0, 2, 5]],
    "several zeros": [[0.0, 2, 3], [0, -2, 0]],
    "no zero": [[1.5, 0.5, -2], [3, 2, 0.25]],
    "an overflow": [[1e30, 2e30, 3], [0.5, 2, 5]],
    "an infinity": [[1.0, 2, INFINITY], [0, 2, 5]],
    "a NaN": [[NAN, 1], [2, 2.0]],
}
PROGRAMS = {
    "max": torch.max,
    "min": torch.min,
    "median": torch.median,
    "nanmedian": torch.nanmedian,
    "prod": torch.prod,
    "prod along columns": lambda x: x.prod(0),
    "prod along rows": lambda x: x.prod(-1, keepdim=True),
    "prod in double precision": lambda x: x.prod(0, dtype=torch.float64),
    "cumprod along columns": lambda x: x.cumprod(0),
    "cumprod along rows": lambda x: x.cumprod(-1),
}


def gradients(function, x, tangent):
    x = x.detach().requires_grad_()
    result = function(x)
    return torch.autograd.grad(result, x, torch.full_like(result, tangent))[0]


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients(name):
    program = PROGRAMS[name]
    compiled = lampwork.compile(program, options={"cache": False})
    for rows in INPUTS.values():
        for x in (torch.tensor(rows), torch.tensor(rows).t().contiguous().t()):
            for tangent in (1.0, -1.0, INFINITY):
                found, expected = (gradients(each, x, tangent) for each in (compiled, program))
                torch.testing.assert_close(found, expected, equal_nan=True, rtol=1e-6, atol=0)
                is_zero = expected == 0
                assert torch.equal(found.signbit() & is_zero, expected.signbit() & is_zero)
    assert not lampwork.stats(compiled)["fallbacks"]


def test_gradients_within_the_program():
    program = lambda x: torch.autograd.grad(x.max() * -1, x)[0] + torch.autograd.grad(x.prod(), x)[0]
    compiled = lampwork.compile(program, options={"cache": False})
    x = torch.tensor([1.0, 3.0, 2.0], requires_grad=True)
    torch.testing.assert_close(compiled(x), program(x))


def test_masks_of_clamp_are_combined_in_place():
    """Eager's derivative raises where the mask that is written does not have the result's shape."""
    shapes = ((), (1, 1), (3,))
    for which in itertools.product(shapes, repeat=3):
        outcomes = []
        for function in (torch.clamp, lampwork.compile(torch.clamp, options={"cache": False})):
            tensors = [torch.full(shape, 0.5 * place, requires_grad=True) for place, shape in enumerate(which)]
            try:
                function(*tensors).sum().backward()
                outcomes.append([each.grad for each in tensors])
            except RuntimeError as error:
                outcomes.append(str(error))
        if isinstance(outcomes[0], str):
            assert outcomes[1] == outcomes[0]
        else:
            torch.testing.assert_close(outcomes[1], outcomes[0])


@pytest.mark.parametrize("count", [3, 7])
def test_the_deviation_of_equal_elements_is_zero(count):
    """In double precision it was what their mean is rounded by, and its gradient is that of no deviation."""
    x = (torch.rand(1, 8, dtype=torch.float64) * 3).expand(count, 8)
    compiled = lampwork.compile(lambda x: torch.std_mean(x, 0), options={"cache": False})
    deviation, mean = compiled(x)
    assert not deviation.any() and torch.equal(mean, x[0])
    torch.testing.assert_close(
        gradients(lambda x: compiled(x)[0], x, 1.0), gradients(lambda x: x.std(0), x, 1.0), rtol=0, atol=0
    )


@pytest.mark.parametrize(
    "program",
    [lambda x: x.view(-1, 2).sgn(), lambda x: x.sgn()[:1], lambda x: x.view(-1, 2).sgn() + x.view(-1, 2)],
)
def test_zeros_without_memory(program):
    """PyTorch hands on the derivative of a sign as zeros that views of them do not show to anybody."""
    for dynamic in (None, True):
        compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
        for length in (2, 4, 6):
            seen = []
            for function in (program, compiled):
                x = torch.arange(float(length)).requires_grad_()
                function(x).sum().backward()
                seen.append(((x.grad + 0).tolist(), x.grad.stride()))
            assert seen[0] == seen[1]
