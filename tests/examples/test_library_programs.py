"""The programs of docs/recipes.md, each compiled once: eager's numbers, few breaks, nothing that runs eagerly.

The libraries are no part of what tests need: install one, and its programs run.
"""

from __future__ import annotations

import warnings

import pytest
import torch

import lampwork
from tests.examples.library_programs import PROGRAMS, built, is_there, run


def tensors(value):
    return list(value) if isinstance(value, (tuple, list)) else [value]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_a_library(name):
    if not is_there(name):
        pytest.skip(f"{', '.join(PROGRAMS[name][0])} is not installed")
    mine, other = built(name), built(name)
    expected = run(mine, mine[0])
    compiled = lampwork.compile(other[0], options={"cache": False, "numerics": "eager"})
    with warnings.catch_warnings():
        warnings.simplefilter("error", lampwork.LampworkWarning)
        found = run(other, compiled)
    for one, same in zip(expected, found):
        for left, right in zip(tensors(one), tensors(same), strict=True):
            assert type(left) is type(right)
            torch.testing.assert_close(left, right, rtol=1e-3, atol=1e-4)
    for left, right in zip(mine[2], other[2]):
        torch.testing.assert_close(dict(left.state_dict()), dict(right.state_dict()), rtol=1e-3, atol=1e-4)
    stats = lampwork.stats(compiled)
    assert stats["calls"] >= len(mine[1]) and not stats["fallbacks"]
    assert sum(each.count for each in stats["breaks"]) <= PROGRAMS[name][1] * stats["calls"]
