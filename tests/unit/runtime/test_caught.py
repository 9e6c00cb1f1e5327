"""What a call raises within itself is noted, and who traces the thread goes on."""

from __future__ import annotations

import sys

import pytest

from lampwork.runtime.caught import Raised

pytestmark = pytest.mark.skipif(sys.gettrace() is not None, reason="a debugger or a coverage tool traces the tests")


def catches():
    try:
        return [][0]
    except IndexError:
        return None


def test_errors_that_are_caught():
    with Raised() as raised:
        catches()
    assert raised.has(IndexError()) and not raised.has(LookupError()) and not raised.has(ValueError())
    assert sys.gettrace() is None


def test_nothing_is_raised():
    with Raised() as raised:
        len([])
    assert not raised.has(IndexError())


def test_a_debugger_from_before():
    trace = lambda *event: None
    sys.settrace(trace)
    try:
        with Raised() as raised:
            catches()
        assert sys.gettrace() is trace and not raised.has(IndexError())
    finally:
        sys.settrace(None)


def test_a_debugger_that_the_call_starts():
    trace = lambda *event: None
    try:
        with Raised():
            sys.settrace(trace)
        assert sys.gettrace() is trace
    finally:
        sys.settrace(None)
