"""Functions of Python that schedules and optimizers compute rates with, of counters and numbers that vary."""

from __future__ import annotations

import math

import pytest
import torch

import lampwork

#: Each gives a floating-point number for a counter and a float: one entry serves all of them.
SMOOTH = {
    "pow of a counter": lambda n, v: math.pow(n, -0.8),
    "pow by a counter": lambda n, v: math.pow(0.9, n),
    "built-in pow": lambda n, v: pow(n, -0.5) + pow(0.9, n) + pow(v, n),
    "logarithm to a base": lambda n, v: math.log(n + 1, 2),
    "two numbers": lambda n, v: math.atan2(n, v) + math.fmod(v, 0.1) + math.remainder(n, 2.5),
    "one number": lambda n, v: math.cbrt(v) + math.exp2(-v) + math.radians(v) + math.lgamma(n + 1) + math.cosh(v),
    "rounded": lambda n, v: round(v, 2),
    "close": lambda n, v: 1.0 if math.isclose(v, 100.0) else 2.0,
}


@pytest.mark.parametrize("name", SMOOTH)
def test_one_entry_serves_all_numbers(name):
    def program(x, n, v):
        rate = SMOOTH[name](n, v)
        return x * rate, rate

    compiled = lampwork.compile(program, options={"cache": False})
    x = torch.randn(3)
    for n in range(1, 9):
        (expected, rate), (actual, found) = (each(x, n, 0.9**n) for each in (program, compiled))
        torch.testing.assert_close(actual, expected)
        assert type(found) is float and found == rate
    stats = lampwork.stats(compiled)
    assert stats["captures"] <= 3 and not stats["breaks"] and not stats["fallbacks"], stats["recompiles"]


@pytest.mark.parametrize(
    "stage",
    [lambda n: int(n / 10), lambda n: round(n / 10 - 0.5), lambda n: round(n * 0.1 - 0.5), lambda n: int(0.1 * n)],
)
def test_whole_numbers_are_an_entry_each(stage):
    def program(x, n):
        return x * 2 ** stage(n), stage(n)

    compiled = lampwork.compile(program, options={"cache": False})
    x = torch.randn(3)
    for n in range(1, 30):
        (expected, number), (actual, found) = program(x, n), compiled(x, n)
        assert torch.equal(actual, expected) and found == number and type(found) is int
    stats = lampwork.stats(compiled)
    assert stats["captures"] <= 7 and not stats["fallbacks"], stats["recompiles"]


def test_numbers_that_fail_are_eagers():
    def program(x, v):
        return x * math.pow(v, 0.5), x * math.gamma(v), x + int(v), round(v), round(v, 1)

    compiled = lampwork.compile(program, options={"cache": False})
    x = torch.randn(3)
    for v in (1.5, 2.5, 3.25, -0.5, 400.5, math.inf, math.nan, 4.75):
        outcomes = []
        for each in (program, compiled):
            try:
                outcomes.append(each(x, v))
            except (ValueError, OverflowError) as error:
                outcomes.append((type(error), str(error)))
        if torch.is_tensor(outcomes[0][0]):
            torch.testing.assert_close(outcomes[1], outcomes[0])
        else:
            assert outcomes[1] == outcomes[0]


def test_shares_of_a_count_that_may_be_zero():
    """`BatchNorm(momentum=None)`: one over a counter that the program has just counted up, which may have been -1."""

    def program(norm, x):
        return norm(x)

    def run(function, counts):
        norm, found = torch.nn.BatchNorm1d(3, momentum=None), []
        for count in counts:
            if count is not None:
                norm.num_batches_tracked.fill_(count)
            try:
                function(norm, torch.arange(6.0).reshape(2, 3))
                error = None
            except ZeroDivisionError as raised:
                error = str(raised)
            found.append((error, norm.num_batches_tracked.item(), norm.running_mean.tolist()))
        return found

    counts = (None, None, None, -1, None, 7, -2, -1)
    compiled = lampwork.compile(program, options={"cache": False})
    assert run(compiled, counts) == run(program, counts)
    again = lampwork.compile(program, options={"cache": False})
    assert run(again, (None, 5, None)) == run(program, (None, 5, None))
    stats = lampwork.stats(again)
    assert stats["captures"] == 1 and not stats["breaks"] and not stats["fallbacks"]
