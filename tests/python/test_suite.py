"""Every program of tests/python/programs equals eager: one test a program, and the share captured in one graph."""

from __future__ import annotations

import pytest

from tests.python.harness import all_programs, run_program


@pytest.mark.parametrize(("feature", "name"), all_programs())
def test_program(feature, name, record_property):
    outcome = run_program(feature, name)
    record_property("program", (feature, name, outcome.reasons))
    assert not outcome.mismatch, outcome.mismatch
