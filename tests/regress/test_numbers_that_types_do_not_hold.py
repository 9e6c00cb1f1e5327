"""Numbers that tensors are filled with, or ranges made of: errors were lost, added where a tensor of one element is filled
another way, and told in other words to a program that catches them."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import lampwork

MADE = {
    "one element": lambda a, dtype: torch.full((1,), a, dtype=dtype),
    "two elements": lambda a, dtype: torch.full((2,), a, dtype=dtype),
    "new": lambda a, dtype: torch.ones(2, dtype=dtype).new_full((1, 1), a),
    "alike": lambda a, dtype: torch.full_like(torch.ones(3, dtype=dtype), a),
    "a number": lambda a, dtype: torch.scalar_tensor(a, dtype=dtype),
    "padded": lambda a, dtype: F.pad(torch.ones(2, dtype=dtype), (1, 1), value=a),
    "from nothing": lambda a, dtype: torch.linspace(0, a, 3, dtype=dtype),
    "of one step": lambda a, dtype: torch.linspace(a, 0, 1, dtype=dtype),
}


def caught(program, *arguments):
    try:
        return program(*arguments)
    except (RuntimeError, OverflowError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int64]
)
@pytest.mark.parametrize("number", [70000.0, 3.5e38, 300, 2**63, -1])
def test_made_of_a_number(made, dtype, number):
    program = lambda a: caught(MADE[made], a, dtype)
    expected, found = program(number), lampwork.compile(program)(number)
    assert type(found) is type(expected)
    if type(expected) is tuple:
        assert found == expected
    else:
        assert found.dtype == expected.dtype and torch.equal(found, expected)


@pytest.mark.parametrize("ends", [(2**63 - 1, 2**63 + 1, 1), (0, 2**63, 2**62), (0, 2**40, 2**39)])
def test_ranges_of_large_integers(ends):
    program = lambda start, end, step: caught(torch.arange, start, end, step)
    expected, found = program(*ends), lampwork.compile(program)(*ends)
    assert found == expected if type(expected) is tuple else torch.equal(found, expected)


@pytest.mark.parametrize("function", [F.elu, F.celu])
def test_curves_of_an_infinite_height(function):
    """Once the height varies, 0 was multiplied with it."""
    compiled = lampwork.compile(lambda x, a: function(x, a))
    x = torch.tensor([1.0, -2.0, 0.0, -0.0, math.nan])
    for height in (0.5, 0.25, math.inf, -math.inf):
        expected, found = function(x, height), compiled(x, height)
        torch.testing.assert_close(found, expected, equal_nan=True)
        assert torch.equal(found.signbit(), expected.signbit())


@pytest.mark.parametrize("default", [torch.float32, torch.float64])
def test_numbers_in_the_default_type(default):
    program = lambda a: caught(torch.scalar_tensor, a)
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(default)
        compiled = lampwork.compile(program)
        for number in (1.0, 2.0, 1e39):
            assert str(compiled(number)) == str(program(number))
    finally:
        torch.set_default_dtype(before)
