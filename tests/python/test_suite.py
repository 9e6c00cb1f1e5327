"""Every program of tests/python/programs equals eager: one test a program, and the share captured in one graph."""

from __future__ import annotations

import pytest

from tests.python.harness import REMAINING, all_programs, run_program


def _case(feature, name):
    known = REMAINING.get(name)
    return pytest.param(feature, name, marks=[pytest.mark.xfail(reason=known, strict=True)] if known else [])


@pytest.mark.parametrize(("feature", "name"), [_case(*each) for each in all_programs()])
def test_program(feature, name, record_property):
    outcome = run_program(feature, name)
    record_property("program", (feature, name, outcome.reasons))
    assert not outcome.mismatch, outcome.mismatch
