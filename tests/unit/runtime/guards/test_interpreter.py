"""Paths that are read one by one, without a compiled check."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lampwork.ir.source import Argument, InstanceDict, Item, Keyword
from lampwork.runtime.guards.interpreter import READ_ERRORS, Scope, read

THING = SimpleNamespace(first=[1, 2], second={"key": 3})


def paths():
    """Made anew each time: with ids of earlier ones, some of them."""
    thing = InstanceDict(Argument(0))
    yield Item(Item(thing, "first"), 0), 1
    yield Item(Item(thing, "first"), 1), 2
    yield Item(Item(thing, "second"), "key"), 3
    yield Keyword("other"), 4


def test_one_scope_reads_what_several_read():
    scope = Scope(len, (THING,), {"other": 4})
    for _ in range(50):
        for path, value in paths():
            assert read(path, scope) == value
            del path


def test_a_path_that_leads_nowhere():
    scope = Scope(len, (THING,), {})
    for path in (Argument(1), Keyword("other"), Item(InstanceDict(Argument(0)), "third")):
        with pytest.raises(READ_ERRORS):
            read(path, scope)
