"""The catalogue is true of the code: each fault's text is there once, and what it becomes compiles."""

from __future__ import annotations

import pytest

from tests.mutants.__main__ import faults
from tests.mutants.checks import CHECKS
from tests.mutants.fault import ROOT

FAULTS = faults()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_can_be_seeded(fault):
    compile(fault.source(), str(fault.path), "exec")
    assert fault.stage in CHECKS


def test_names_differ():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 100


def test_checks_are_there():
    assert all((ROOT / path.partition("::")[0]).exists() for paths in CHECKS.values() for path in paths)
