"""An iterator over a list that was there before a break, and grew behind it, goes on where it stood at the next break."""

from __future__ import annotations

import pytest
import torch

import lampwork


@torch.compiler.disable
def _numbers():
    return [0, 1, 0]


def grown_behind_a_break(x, seen):
    found = []
    for number in _numbers():
        found.append(number)
    for number in found:
        seen.append(number)
        if number == 1:
            _numbers()
    return x + len(found)


def in_a_loop(x, seen):
    for _ in range(3):
        found = []
        for number in _numbers():
            found.append(number)
        for place, number in enumerate(found):
            seen.append((place, number))
            _numbers()
    return x + len(seen)


def backwards(x, seen):
    found = []
    found.extend(_numbers())
    found.append(7)
    for number in reversed(found):
        seen.append(number)
        _numbers()
    return x + len(found)


def two_at_once(x, seen):
    left, right = [], []
    for number in _numbers():
        left.append(number)
        right.append(number + 5)
    for pair in zip(left, right):
        seen.append(pair)
        _numbers()
    return x + len(left)


@pytest.mark.parametrize("program", [grown_behind_a_break, in_a_loop, backwards, two_at_once])
def test_nothing_is_seen_twice(program):
    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        expected: list = []
        found: list = []
        assert torch.equal(program(torch.ones(2), expected), compiled(torch.ones(2), found))
        assert found == expected
