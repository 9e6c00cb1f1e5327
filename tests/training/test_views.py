"""Results that are views of leaves, of what leaves were computed to, and of each other: whatever a caller does with
them, gradients, their strides and what autograd forbids are eager's.

Views of an expanded leaf were one strided view of it, whose derivative divides by the number of elements that share
memory; views made without gradients required grad; parts of a split could be written to.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import lampwork
from tests.training.view_programs import CRASHES, LEAVES, OBSERVERS, PROGRAMS, observe

NAMES = list(LEAVES)

#: Not as in eager where the argument is written: autograd counts one write more, and knows another node; gradients of
#: gradients raise.
NOT_OF_WRITTEN = ("views_of_argument", "twice")


def alike(seen: Any, expected: Any) -> bool:
    """Whether tensors have the same values, and all else is equal."""
    if isinstance(expected, torch.Tensor):
        same = isinstance(seen, torch.Tensor) and seen.shape == expected.shape and seen.dtype == expected.dtype
        return same and torch.allclose(seen, expected, rtol=1e-9, atol=1e-12)
    if isinstance(expected, (list, tuple)):
        return len(seen) == len(expected) and all(map(alike, seen, expected))
    return seen == expected


def differences(name: str, leaves: list[str]) -> list[str]:
    """Where the program `name`, compiled, is seen to differ from eager."""
    lampwork.reset()
    program = PROGRAMS[name]
    compiled = lampwork.compile(program, options={"cache": False, "recompile_limit": 2 * len(LEAVES)})
    found = []
    for leaf in leaves:
        for observer in OBSERVERS:
            if (name, observer) in CRASHES or (name.endswith("argument_written") and observer in NOT_OF_WRITTEN):
                continue
            expected, seen = observe(program, leaf, observer), observe(compiled, leaf, observer)
            if isinstance(expected, type) or isinstance(seen, type):
                same = expected is seen
            else:
                same = alike(seen, expected)
            if not same:
                found.append(f"{leaf}, {observer}: {seen}, eager: {expected}")
    reasons = [each.diagnostic.reason for each in lampwork.stats(compiled)["fallbacks"]]
    allowed = ("create_graph=True", "writes to an expanded", "is a view", "in-place operation", "raises an exception")
    found += [reason for reason in reasons if not any(part in reason for part in allowed)]
    return found


@pytest.mark.parametrize("number, name", list(enumerate(PROGRAMS)), ids=list(PROGRAMS))
def test_views(number, name):
    """Each program with three of the leaves: which ones goes round."""
    warnings.simplefilter("ignore")
    leaves = ["expanded", NAMES[number % len(NAMES)], NAMES[(5 * number + 4) % len(NAMES)]]
    assert not differences(name, list(dict.fromkeys(leaves)))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_views_of_every_leaf(name):
    warnings.simplefilter("ignore")
    assert not differences(name, NAMES)
