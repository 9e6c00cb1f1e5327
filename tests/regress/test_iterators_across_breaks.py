"""An iterator over a list that was there before a break, and grew behind it, goes on where it stood at the next break."""

from __future__ import annotations

import collections

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


def values_written_while_walked(x, table):
    found = []
    for name, value in table.items():
        found.append((name, value))
        table["b"] = 5.0
        _numbers()
    return x + sum(value for _, value in found), found


def grows_while_walked(x, table):
    try:
        for name in table:
            _numbers()
            table[name + "x"] = 1.0
    except RuntimeError as error:
        return str(error), x + len(table)
    return x


def view_made_before(x, table):
    backwards = reversed(table.values())
    first = next(backwards)
    _numbers()
    table["a"] = 7.0
    return x * first, list(backwards)


@pytest.mark.parametrize("kind", [dict, lambda **given: collections.defaultdict(float, given)])
@pytest.mark.parametrize("program", [values_written_while_walked, grows_while_walked, view_made_before])
def test_an_iterator_over_a_dict_reads_the_dict(program, kind):
    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        expected, found = kind(a=1.0, b=2.0), kind(a=1.0, b=2.0)
        assert str(program(torch.ones(2), expected)) == str(compiled(torch.ones(2), found))
        assert found == expected


def test_a_deque_is_walked_on():
    def program(x, queue):
        seen = []
        try:
            for number in queue:
                seen.append(number)
                _numbers()
                if number == 2:
                    queue.append(9)
        except RuntimeError as error:
            seen.append(str(error))
        return x + len(seen), seen

    compiled = lampwork.compile(program, options={"cache": False})
    for numbers in ([1, 3], [1, 2, 3], []):
        expected, found = collections.deque(numbers), collections.deque(numbers)
        assert str(program(torch.ones(2), expected)) == str(compiled(torch.ones(2), found))
        assert found == expected


def test_an_exhausted_iterator_stays_so():
    def program(x, table):
        names = iter(table)
        found = list(names)
        _numbers()
        table["z"] = 1.0
        return x + len(found), list(names)

    compiled = lampwork.compile(program, options={"cache": False})
    assert str(compiled(torch.ones(2), {"a": 1.0})) == str(program(torch.ones(2), {"a": 1.0}))
