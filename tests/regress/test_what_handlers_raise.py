"""What a handler of signals, or a tracer, raised where the runtime keeps its own failures from the call was logged, and the
program went on: a timeout that never came, a debugger that did not quit."""

from __future__ import annotations

import dataclasses
import signal
import sys

import pytest
import torch

import lampwork
from lampwork.runtime import function
from lampwork.runtime.leave.post_graph import attempt
from lampwork.runtime.stats import noted


class OutOfTime(Exception):
    pass


@pytest.fixture(autouse=True)
def handled():
    def handler(number, frame):
        raise OutOfTime

    before = signal.signal(signal.SIGUSR1, handler)
    yield
    signal.signal(signal.SIGUSR1, before)


def comes(*args):
    signal.raise_signal(signal.SIGUSR1)


def test_while_something_is_noted():
    with pytest.raises(OutOfTime):
        noted(comes)


def test_while_an_object_is_made():
    with pytest.raises(OutOfTime):
        attempt(comes)


@pytest.mark.parametrize("strict", [False, True])
def test_before_a_compile_makes_them_wait(strict, monkeypatch):
    monkeypatch.setattr(function, "environment", dataclasses.replace(function.environment, strict=strict))
    made = lampwork.compile(lambda x: x + 1, options={"cache": False})
    with monkeypatch.context() as patched:
        patched.setattr(function, "foreign_device", comes)
        with pytest.raises(OutOfTime):
            made(torch.ones(2))
    made(torch.ones(2))
    assert not lampwork.stats(made)["fallbacks"]


def test_while_a_table_of_entries_is_asked(monkeypatch):
    monkeypatch.setattr(function, "environment", dataclasses.replace(function.environment, strict=False))
    made = function.CompiledFunction.__new__(function.CompiledFunction)
    made.function = None

    class Table:
        first = comes

    with pytest.raises(OutOfTime):
        made._likely(Table(), (), {})


@pytest.mark.parametrize("place", ["check", "serve", "call"])
def test_what_a_tracer_raises(place, monkeypatch):
    """As a debugger does that is told to quit."""
    monkeypatch.setattr(function, "environment", dataclasses.replace(function.environment, strict=False))
    made = lampwork.compile(lambda x: x + 1, options={"cache": False})
    made(torch.ones(2))

    def tracer(frame, event, argument):
        if event == "line" and frame.f_code.co_name == place:
            raise OutOfTime
        return tracer

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        with pytest.raises(OutOfTime):
            made(torch.ones(2))
    finally:
        sys.settrace(before)
    made(torch.ones(2))
    assert not lampwork.stats(made)["fallbacks"]
