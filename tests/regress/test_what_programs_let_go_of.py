"""Generators that a program lets go of end there, also where another one that iterates over them was given up before:
the traceback of that one's `GeneratorExit` kept the frames that held them."""

from __future__ import annotations

import functools

import pytest
import torch

import lampwork

LOG: list[str] = []


def counted(n):
    try:
        yield from range(n)
    finally:
        LOG.append("end")


def any_of(x, n):
    g = counted(n)
    return x + any(v > 1 for v in g)


def first_of(x, n):
    g = counted(n)
    return x + next((v for v in g if v > 1), 0)


def given_up(x, n):
    g = counted(n)
    next(v for v in g if v > 1)
    return x * 2


@pytest.mark.parametrize("program", [any_of, first_of, given_up])
def test_generators_end_where_they_are_let_go_of(program):
    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        found = []
        for function in (program, compiled):
            LOG.clear()
            found.append((function(torch.ones(2), 5).tolist(), list(LOG)))
        assert found[0] == found[1] and found[0][1] == ["end"]


def test_positional_arguments_come_in_another_tuple():
    """`g(*a)` gives `g` a tuple of its own, though `a` is one."""

    def star(*given):
        return given

    def program(x, *a):
        passed = star(*a)
        return x + 1, passed is a, passed == a

    x = torch.ones(2)
    assert lampwork.compile(program)(x, 1, 2)[1:] == program(x, 1, 2)[1:] == (False, True)


def test_a_factorisation_that_fails_is_the_programs():
    """The program catches what the operator raises of contents: the call runs eagerly, and is counted."""

    def program(a):
        try:
            return torch.linalg.cholesky(a * 2)
        except torch.linalg.LinAlgError:
            return a.diagonal()

    compiled = lampwork.compile(program)
    good, bad = torch.eye(3), torch.tensor([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    with pytest.warns(lampwork.errors.LampworkWarning, match="not positive-definite"):
        for matrix in (good, bad, good):
            torch.testing.assert_close(compiled(matrix), program(matrix))
    (fallback,) = lampwork.stats(compiled)["fallbacks"]
    assert fallback.diagnostic.id == "assumption-failed" and fallback.count == 1


def test_extremes_of_sizes_stay_sizes():
    """`torch.sym_max` asks first whether its arguments override functions, which fixed them."""

    def program(x, y):
        longest = torch.sym_max(x.shape[0], y.shape[0])
        return torch.zeros(longest + 1) + torch.sym_min(x.shape[0], 100)

    compiled = lampwork.compile(program, options={"cache": False})
    for size in (3, 4, 7, 9):
        x, y = torch.ones(size), torch.ones(size + 2)
        torch.testing.assert_close(compiled(x, y), program(x, y))
    assert lampwork.stats(compiled)["captures"] == 2


def test_no_cache_keeps_an_exception():
    """What a function under `lru_cache` raised while it was captured was raised on every later call."""
    known = {}

    @functools.lru_cache
    def load(name):
        return known[name]

    def program(x, name):
        try:
            return x * load(name)
        except KeyError as error:
            return str(error)

    compiled = lampwork.compile(program, options={"cache": False})
    x = torch.ones(2)
    assert [compiled(x, "k"), compiled(x, "k")] == ["'k'", "'k'"]
    known["k"] = 3.0
    assert compiled(x, "k").tolist() == [3.0, 3.0]
