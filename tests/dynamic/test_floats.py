"""Floating-point numbers that vary between calls: one compile serves them, with eager's numbers."""

from __future__ import annotations

import math
import os
import textwrap

import pytest
import torch

import lampwork
from tests.dynamic.support import check, compare, relations
from tests.processes import run_python

NUMBERS = (0.7, 0.3, 0.9, 1.5, 2.5, 0.6)
PROGRAMS: dict = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


@program
def temperature(x, t):
    return (x / t).softmax(-1) * t + 1


@program
def other_side(x, t):
    return t - x, t / (x.abs() + 1), t * x, x - t, (t + 1) ** 2 * x


@program
def step_in_place(x, t):
    x.add_(x.sin(), alpha=-t)
    x.mul_(1 - t * 0.1)
    x += t
    x *= -t
    return x.sum()


@program
def numbers_returned(x, t):
    return t * 3, [t], {"root": math.sqrt(t)}, math.exp(-t), x * max(t, 0.1), min(t, 3.0), abs(t), float(t)


@program
def half_types_and_integers(x, t):
    return x.bfloat16() * t, x.half() / t, x.long() * t, x.long() > t, x.double() / t


@program
def filled(x, t):
    positive = x > 0
    chosen = torch.where(positive, x, t), torch.where(positive, t, x), x.masked_fill(positive, t)
    return *chosen, x.clamp(-1.0, t), x.clamp(min=-t), x.bfloat16().clamp(max=t)


@program
def powers(x, t):
    return x.abs() ** t, t**x, 0.9**t * x, t**2 * x, t**-0.5 * x


@program
def questions(x, t):
    if math.isnan(t) or t < 0 or not t:
        return x
    return x * t if isinstance(t, float) and type(t) is float else None


@program
def in_a_container(x, options):
    return x * options["scale"] + options["shift"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_two_compiles_serve_all_numbers(name):
    torch.manual_seed(0)
    x = torch.randn(5, 6)
    shaped = (lambda t: {"scale": t, "shift": -t}) if name == "in_a_container" else lambda t: t
    check(PROGRAMS[name], [(x, shaped(t)) for t in NUMBERS], captures=2, dynamic=None)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "in_a_container"])
def test_numbers_are_symbols_at_once_where_everything_is(name):
    torch.manual_seed(0)
    check(PROGRAMS[name], [(torch.randn(n, 6), t) for n, t in zip((5, 4, 9, 6), NUMBERS)], captures=1, dynamic=True)


def compiled_calls(function, *calls, **options):
    compiled = lampwork.compile(function, options={"cache": False}, **options)
    for args in calls:
        compare(compiled(*args), function(*args))
    return compiled


def test_a_branch_is_a_guard_on_the_number():
    def function(x, t):
        return x * t if t * 2 > 1 else x - t

    x = torch.randn(4)
    compiled = compiled_calls(function, *[(x, t) for t in (0.1, 0.2, 0.3, 0.9, 3.0, float("nan"), float("inf"))])
    assert lampwork.stats(compiled)["captures"] == 3
    assert sorted(relations(compiled)[:2]) == [["(f0 * 2) > 1"], ["not (f0 * 2) > 1"]]


def test_zero_negative_and_numbers_too_large():
    def function(x, t):
        return x * (1 / t), x * math.sqrt(t)

    x = torch.randn(4)
    compiled = compiled_calls(function, (x, 2.0), (x, 3.0), (x, 4.0))
    for t, error in ((0.0, ZeroDivisionError), (-1.0, ValueError)):
        with pytest.raises(error):
            function(x, t)
        with pytest.raises(error):
            compiled(x, t)

    def power(x, t):
        return x * t**9

    compiled = compiled_calls(power, (x, 2.0), (x, 3.0), (x, 4.0))
    with pytest.raises(OverflowError):
        compiled(x, 1e100)
    assert lampwork.stats(compiled)["captures"] == 3


def test_signed_zero_and_what_is_no_number():
    def function(x, t):
        return x * t, x / (t + 1), [t] if t == t else "none"

    x = torch.tensor([1.0, -1.0, 0.0])
    compiled = compiled_calls(function, *[(x, t) for t in (0.5, 1.5, 0.0, -0.0, float("inf"), float("nan"))])
    assert math.copysign(1, compiled(x, -0.0)[2][0]) == -1 and lampwork.stats(compiled)["captures"] == 3


def test_an_integer_is_another_program():
    def function(x, t):
        return x * t, isinstance(t, float)

    x = torch.arange(4)
    compiled = compiled_calls(function, (x, 0.5), (x, 2.5), (x, 2), (x, 3), (x, 3.5))
    assert lampwork.stats(compiled)["captures"] == 3


def test_a_number_that_is_needed_itself_is_guarded():
    def function(x, t):
        return torch.nn.functional.hardshrink(x, t), f"{t:.1f}"

    x = torch.randn(4)
    compiled = compiled_calls(function, (x, 0.5), (x, 0.25), (x, 0.125), (x, 0.5))
    assert lampwork.stats(compiled)["captures"] == 3


def test_sizes_in_floating_point_arithmetic():
    def function(x, beta, step):
        bias = 1 - beta**step
        return x * (1 / x.shape[0]) / math.sqrt(x.shape[1]) / bias, x.shape[0] / 2

    calls = [(torch.randn(n, n + 1), beta, n) for n, beta in ((3, 0.5), (4, 0.9), (7, 0.99), (30, 0.7))]
    compiled = compiled_calls(function, *calls, dynamic=True)
    assert lampwork.stats(compiled)["captures"] == 1 and not lampwork.stats(compiled)["specialised"]


def test_a_rate_that_an_object_holds():
    class Schedule:
        rate = 1.0

        def __init__(self):
            self.rate = 0.5

    schedule = Schedule()

    def function(x):
        schedule.rate = schedule.rate * 0.9
        return x * schedule.rate

    compiled = lampwork.compile(function, options={"cache": False})
    x = torch.randn(4)
    rate = 0.5
    for _ in range(5):
        rate = rate * 0.9
        torch.testing.assert_close(compiled(x), x * rate)
        assert schedule.rate == rate
    assert lampwork.stats(compiled)["captures"] == 2


def test_a_number_lives_on_behind_a_break():
    def function(x, t):
        y = x * t
        if y.sum().item() > 1e9:
            return y
        return y + t, t

    x = torch.randn(4)
    compiled = compiled_calls(function, *[(x, t) for t in NUMBERS])
    stats = lampwork.stats(compiled)
    assert stats["captures"] <= 4 and not stats["fallbacks"]


def test_another_process_finds_the_entry(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        textwrap.dedent("""
        import sys, torch, lampwork

        def function(x, t):
            return x * t + (t if t > 0.5 else 0.0), t * 2

        compiled = lampwork.compile(function)
        x = torch.ones(3)
        for t in map(float, sys.argv[1:]):
            torch.testing.assert_close(compiled(x, t), function(x, t))
        print(lampwork.stats(compiled)["captures"])
        """)
    )
    counts = []
    for numbers in ("0.6 0.7 0.8".split(), "0.9 1.1 2.5".split()):
        environment = {"LAMPWORK_CACHE_DIR": str(tmp_path / "cache"), "LAMPWORK_CACHE": "1"}

        run = run_python([script, *numbers], timeout=120, env={**os.environ, **environment})
        assert run.returncode == 0, run.stderr
        counts.append(int(run.stdout))
    assert counts == [2, 0]
