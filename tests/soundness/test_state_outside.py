"""State that is there before a call, and stays after it: context variables, iterators, the working directory."""

from __future__ import annotations

import contextvars
import itertools
import os
import threading

import pytest
import torch

import lampwork
from tests.python.warm import run_cold_and_warm

LEVEL = contextvars.ContextVar("level", default=1.0)
BARE = contextvars.ContextVar("bare")


def compiled(function):
    return lampwork.compile(function, options={"cache": False})


def whole(function):
    stats = lampwork.stats(function)
    assert not stats["breaks"] and not stats["fallbacks"]


def in_context(function, *steps):
    """What each step gives in one context, and what the variables hold behind it."""

    def run():
        found = []
        for step in steps:
            try:
                result = step(function)
            except Exception as error:
                result = type(error), str(error)
            found.append((result, LEVEL.get(), BARE.get("nothing")))
        return found

    return contextvars.Context().run(run)


def same(function, *steps):
    made = compiled(function)
    for ours, eagers in zip(in_context(made, *steps), in_context(function, *steps), strict=True):
        failed = isinstance(eagers[0], tuple) and isinstance(eagers[0][0], type)
        if failed:
            assert ours[0] == eagers[0]
        else:
            torch.testing.assert_close(ours[0], eagers[0])
        assert ours[1:] == eagers[1:]
    return made


def test_a_variable_set_and_reset():
    def f(x):
        token = LEVEL.set(LEVEL.get() + 1)
        y = x * LEVEL.get()
        inner = LEVEL.set(10.0)
        y = y + LEVEL.get()
        LEVEL.reset(inner)
        y = y * LEVEL.get()
        LEVEL.reset(token)
        return y, torch.tensor(LEVEL.get())

    call = lambda f: f(torch.ones(2))
    set_outside = lambda f: LEVEL.set(5.0) and f(torch.ones(2))
    whole(same(f, call, call, set_outside, call))


def test_a_variable_left_set():
    def f(x):
        before = BARE.get(None)
        BARE.set("seen")
        LEVEL.set(LEVEL.get() * 2)
        return x + (1 if before is None else 2)

    call = lambda f: f(torch.ones(2))
    same(f, call, call, call)


def test_a_variable_set_before_an_error():
    def f(x):
        LEVEL.set(7.0)
        if x.shape[0] == 3:
            raise ValueError("three")
        return x

    same(f, lambda f: f(torch.ones(2)), lambda f: f(torch.ones(3)), lambda f: f(torch.ones(2)))


def test_a_variable_that_has_no_value():
    def f(x):
        token = BARE.set(1)
        BARE.reset(token)
        return x + BARE.get(3)

    call = lambda f: f(torch.ones(2))
    set_outside = lambda f: BARE.set(9) and f(torch.ones(2))
    same(f, call, call, set_outside)


def test_a_token_that_is_used_twice():
    def f(x):
        token = LEVEL.set(3.0)
        LEVEL.reset(token)
        LEVEL.reset(token)
        return x

    made = compiled(f)
    for function in (f, made):
        with pytest.raises(RuntimeError, match="has already been used once"):
            function(torch.ones(2))


def test_a_token_that_leaves():
    def f(x):
        return x + 1, LEVEL.set(4.0)

    made = compiled(f)
    for function in (f, made):
        _, token = function(torch.ones(2))
        assert LEVEL.get() == 4.0
        LEVEL.reset(token)
        assert LEVEL.get() == 1.0


def test_a_variable_set_around_a_break():
    def f(x):
        token = LEVEL.set(2.0)
        y = x * LEVEL.get()
        if y.sum() > 0:
            y = y + LEVEL.get()
        LEVEL.reset(token)
        return y * LEVEL.get()

    same(f, lambda f: f(torch.ones(2)), lambda f: f(-torch.ones(2)))


@pytest.mark.parametrize("make", [lambda: itertools.count(3), lambda: itertools.count(90, -2)])
def test_counts_from_outside(make):
    def f(x, counter):
        first = next(counter)
        return [x * first + i for i, _ in zip(counter, range(3))], next(counter)

    made = compiled(f)
    ours, eagers = make(), make()
    for _ in range(5):
        torch.testing.assert_close(made(torch.ones(2), ours), f(torch.ones(2), eagers))
        assert repr(ours) == repr(eagers)
    whole(made)
    assert lampwork.stats(made)["captures"] <= 3


@pytest.mark.parametrize("start", [(0.5,), (1, 0), (2, 0.5)])
def test_counts_of_other_kinds(start):
    def f(x, counter):
        return x * next(counter)

    made = compiled(f)
    ours, eagers = itertools.count(*start), itertools.count(*start)
    for _ in range(3):
        torch.testing.assert_close(made(torch.ones(2), ours), f(torch.ones(2), eagers))


def test_the_working_directory(tmp_path, monkeypatch):
    def f(x):
        return x + 1, os.getcwd(), os.path.join(os.getcwd(), "weights.pt")

    made = compiled(f)
    for folder in (tmp_path, tmp_path.parent, tmp_path):
        monkeypatch.chdir(folder)
        assert made(torch.ones(2))[1:] == f(torch.ones(2))[1:]
    whole(made)


def test_stored_entries(tmp_path):
    text = """
import contextvars, os, torch, lampwork
LEVEL = contextvars.ContextVar("level", default=1.0)

@lampwork.compile
def f(x):
    token = LEVEL.set(LEVEL.get() + 1)
    y = x * LEVEL.get()
    LEVEL.reset(token)
    return y, os.getpid()

LEVEL.set(4.0)
y, process = f(torch.ones(2))
print(y, process == os.getpid(), LEVEL.get())
LEVEL.set(5.0)
print(f(torch.ones(2))[0], len(lampwork.stats(f)["breaks"]))
print(lampwork.stats(f)["cache_hits"])
"""
    cold, warm = run_cold_and_warm(tmp_path, text)
    assert cold[:-1] == warm[:-1] and " True 4.0" in cold[0] and cold[1].endswith(" 0")
    assert cold[-1] == "0" and int(warm[-1]) >= 1


class Settings(threading.local):
    scale = 3.0


LOCAL, SETTINGS = threading.local(), Settings()


def in_thread(function, *steps):
    """What each step gives in a thread of its own, and what that thread holds behind it."""
    found = []

    def run():
        for step in steps:
            try:
                result = step(function)
            except Exception as error:
                result = type(error), str(error)
            found.append((result, dict(LOCAL.__dict__), dict(SETTINGS.__dict__)))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found


def same_in_threads(function, *steps):
    made = compiled(function)
    for _ in range(2):
        assert repr(in_thread(made, *steps)) == repr(in_thread(function, *steps))
    return made


def test_attributes_of_a_thread():
    def f(x):
        LOCAL.count = getattr(LOCAL, "count", 0) + 1
        SETTINGS.name = "set"
        y = x * SETTINGS.scale + LOCAL.count
        SETTINGS.scale = 4.0
        return y, hasattr(LOCAL, "other"), SETTINGS.scale

    call = lambda f: f(torch.ones(2))
    set_outside = lambda f: setattr(LOCAL, "count", 7) or f(torch.ones(2))
    other = lambda f: setattr(LOCAL, "other", 1) or f(torch.ones(2))
    whole(same_in_threads(f, call, call, set_outside, other, call))


def test_an_attribute_that_a_thread_lacks():
    def f(x):
        try:
            y = x + LOCAL.missing
        except AttributeError as error:
            return x, str(error)
        del LOCAL.missing
        return y

    given = lambda f: setattr(LOCAL, "missing", 2) or f(torch.ones(2))
    whole(same_in_threads(f, lambda f: f(torch.ones(2)), given, lambda f: f(torch.ones(2))))


def test_a_local_that_the_program_makes():
    def f(x):
        local = threading.local()
        local.scale = x.sum()
        del local.scale
        local.scale = 2
        return x * local.scale, hasattr(local, "other")

    whole(same_in_threads(f, lambda f: f(torch.ones(2)), lambda f: f(torch.ones(2))))


def test_a_tensor_of_a_thread():
    def f(x):
        cached = getattr(LOCAL, "cached", None)
        if cached is None:
            cached = LOCAL.cached = x * 2
        return cached + x

    same_in_threads(f, lambda f: f(torch.ones(2)), lambda f: f(torch.ones(2)))
