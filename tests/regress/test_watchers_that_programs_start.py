"""Debuggers, tracers and profilers that a program starts itself found what stood for its frames: no variables, and lines and
calls of ours. The call runs eagerly."""

from __future__ import annotations

import cProfile
import io
import pdb
import sys

import pytest
import torch

import lampwork

SEEN = []


def stopped(*args, **kwargs):
    frame = sys._getframe(1)
    SEEN.append((frame.f_code.co_name, frame.f_lineno, sorted(frame.f_locals)))


def note(frame, event, argument):
    if frame.f_code.co_filename == __file__:
        SEEN.append((frame.f_code.co_name, event, frame.f_lineno))
    return note


def inner(x):
    return x * 2


def stops(x):
    y = x * 2
    breakpoint()
    return y + 1


def stops_after_a_break(x):
    y = x * 2
    if y.sum() > 1:
        breakpoint()
    return y + 1


def stops_in_a_callee(x):
    z = stops_after_a_break(x)
    return z * 2


def traces(x):
    sys.settrace(note)
    y = inner(x)
    sys.settrace(None)
    return y


def profiles(x):
    sys.setprofile(note)
    try:
        return inner(x)
    finally:
        sys.setprofile(None)


def profiles_in_c(x):
    with cProfile.Profile() as profile:
        y = inner(x)
    names = {each.code.co_name: each.callcount for each in profile.getstats() if not isinstance(each.code, str)}
    SEEN.append((names.get("inner"), "call" in names))
    return y


def debugs(x):
    told = io.StringIO()
    pdb.Pdb(stdin=io.StringIO("p x.shape\nn\nc\n"), stdout=told, nosigint=True, readrc=False).set_trace()
    y = x + 1
    SEEN.append(told.getvalue())
    return y


@pytest.mark.parametrize(
    "program", [stops, stops_after_a_break, stops_in_a_callee, traces, profiles, profiles_in_c, debugs]
)
def test_they_watch_the_program(program, monkeypatch):
    monkeypatch.setattr(sys, "breakpointhook", stopped)
    watching = sys.gettrace(), sys.getprofile()
    made = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        SEEN.clear()
        expected = program(torch.ones(2))
        seen = list(SEEN)
        SEEN.clear()
        assert torch.equal(made(torch.ones(2)), expected)
        assert SEEN == seen and seen
    assert (sys.gettrace(), sys.getprofile()) == watching
    (found,) = lampwork.stats(made)["fallbacks"]
    assert (found.id, found.count) == ("watched", 2) and found.location.file
