"""Programs of every family of Python values, captured as one region: capture changes nothing, and what the region's
templates and effects give by the slow, obvious interpreter equals eager.
"""

from __future__ import annotations

import copy

import pytest
import torch

from tests.capture_support import capture_call, run_region, same
from tests.python.harness import load_feature

MODULE, PROGRAMS = load_feature("basics")


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, MODULE.__name__, MODULE)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    function, makers = PROGRAMS[name].function, PROGRAMS[name].makers
    MODULE.GLOBAL_COUNT, MODULE.GLOBAL_LIST[:] = 0, []
    with torch.no_grad():
        args = [make() for make in makers]
        eager_args = copy.deepcopy(args)
        expected = function(*eager_args)
        eager_globals = MODULE.GLOBAL_COUNT, list(MODULE.GLOBAL_LIST)
        MODULE.GLOBAL_COUNT, MODULE.GLOBAL_LIST[:] = 0, []
        before = copy.deepcopy(args)
        generator = torch.get_rng_state()
        region = capture_call(function, *args)
        assert same(before, args), "capture changed its arguments"
        assert torch.equal(generator, torch.get_rng_state()), "capture drew random numbers"
        assert (MODULE.GLOBAL_COUNT, MODULE.GLOBAL_LIST) == (0, [])
        found = run_region(region, function, tuple(args))
    assert same(expected, found), (expected, found)
    assert same(eager_args, args), (eager_args, args)
    assert (MODULE.GLOBAL_COUNT, MODULE.GLOBAL_LIST) == eager_globals
