"""Numbers from outside that change, where the program looks at them."""

from __future__ import annotations

import pytest
import torch

import lampwork


@pytest.mark.parametrize(
    "program",
    [
        lambda x, number: (x * number, round(number, 1)),
        lambda x, number: (x * number, str(number)),
        lambda x, number: (x * number, f"{number:+.1f}"),
        lambda x, number: (x * number, number == number, number > 1),
    ],
    ids=["rounded", "text", "formatted", "compared"],
)
def test_floats_without_an_equal(program):
    """`nan` equals nothing, and zeros of both signs are equal: guards tell them apart all the same."""
    compiled = lampwork.compile(program, options={"cache": False})
    for number in (0.5, 0.25, -0.0, 0.0, float("nan"), float("inf"), float("nan"), -0.0, 0.0):
        assert str(compiled(torch.ones(2), number)) == str(program(torch.ones(2), number))
    assert not lampwork.stats(compiled)["fallbacks"]


@pytest.mark.parametrize("program", [lambda x, n: (x + n, int(str(n))), lambda x, n: (x + n, repr(n), format(n, "b"))])
def test_text_of_integers(program):
    compiled = lampwork.compile(program, options={"cache": False})
    for number in (5, 8, -7, 1 << 40):
        assert str(compiled(torch.ones(2), number)) == str(program(torch.ones(2), number))
