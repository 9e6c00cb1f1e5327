"""Counters that are looked for in milestones: in a set, in a dict, in a range."""

from __future__ import annotations

import collections
import math

import pytest
import torch

import lampwork

MILESTONES = collections.Counter([5, 8])
RATES = {5: 0.5, 8: 0.25, "last": 0.1, None: 3}
MIXED = {5.0, 8.5, math.nan, math.inf, -3, "5"}


def in_counter(x, n):
    return x * 0.5 ** MILESTONES[n] if n in MILESTONES else x


def in_literal(x, n):
    return x + n if n not in {5, 8} else -x


def in_mixed(x, n):
    return -x if n in MIXED else x + n


def in_keys(x, n):
    return -x if n + 1 in RATES.keys() else x


def by_get(x, n):
    return x * RATES.get(n, 2.0), RATES.get(n)


def in_range(x, n):
    return -x if n in range(4, 7) else x


def in_steps(x, n):
    return -x if n in range(11, 1, -3) else x + n


def in_nothing(x, n):
    return -x if n in range(5, 5) or n in {} else x + n


def in_what_is_made(x, n):
    seen = {3, 8}
    seen.add(5)
    return -x if n in seen else x + n


PROGRAMS = [in_counter, in_literal, in_mixed, in_keys, by_get, in_range, in_steps, in_nothing, in_what_is_made]


@pytest.mark.parametrize("program", PROGRAMS)
def test_counters_that_are_not_there_share_an_entry(program):
    compiled = lampwork.compile(program, options={"cache": False})
    x = torch.randn(3)
    for n in [*range(2, 30), -3, 5, 8, 11]:
        torch.testing.assert_close(compiled(x, n), program(x, n), rtol=0, atol=0)
    stats = lampwork.stats(compiled)
    assert stats["captures"] <= 7 and not stats["breaks"] and not stats["fallbacks"], stats["recompiles"]


def test_a_set_that_changes_is_looked_at_again():
    def program(x, n, seen):
        found = n in seen
        seen.add(100)
        return x * 2 if found else x

    compiled = lampwork.compile(program, options={"cache": False})
    x = torch.ones(2)
    for n, seen in ((2, {5}), (3, {5}), (4, {5}), (6, {6, 7}), (5, {5}), (100, {5, 100}), (9, set())):
        expected, found = set(seen), set(seen)
        assert torch.equal(compiled(x, n, found), program(x, n, expected))
        assert found == expected


def test_sizes_that_contents_decide():
    def program(x):
        return x.sum() if len(x.nonzero()) in {2, 3} else x.prod()

    compiled = lampwork.compile(program, options={"cache": False})
    for values in ([1.0, 2, 0, 3], [1.0, 0, 0, 3], [0.0, 0, 0, 1], [1.0, 2, 3, 4]):
        x = torch.tensor(values)
        assert torch.equal(compiled(x), program(x))
