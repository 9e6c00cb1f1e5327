"""What an iterator says of itself while it is iterated."""

from __future__ import annotations

import itertools
import operator

import pytest
import torch

import lampwork


class Numbers:
    """A sequence by `__len__` and `__getitem__` alone."""

    def __init__(self, *values):
        self.values = values

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        if self.values[index] == 0:
            raise IndexError
        return self.values[index]


def hint_of_native(x):
    numbers = iter([1, 2, 3])
    return operator.length_hint(numbers), x * next(numbers), list(numbers)


def hint_of_reversed(x):
    numbers = reversed(Numbers(1, 2, 3))
    hints = [operator.length_hint(numbers)]
    x = x * next(numbers)
    hints.append(operator.length_hint(numbers))
    return hints, x, list(numbers), operator.length_hint(numbers)


def ended_by_index_error(x):
    return x, list(reversed(Numbers(1, 0, 3))), list(Numbers(1, 0, 3))


def hints(x):
    class Hinted:
        def __init__(self, hint):
            self.hint = hint

        def __length_hint__(self):
            if self.hint is None:
                raise TypeError
            return self.hint

    found = [operator.length_hint(Hinted(hint), 7) for hint in (3, None, NotImplemented)]
    return x, found, operator.length_hint(object(), 5), operator.length_hint(Numbers(1, 2))


@pytest.mark.parametrize("program", [hint_of_native, hint_of_reversed, ended_by_index_error, hints])
def test_iterator(program):
    x = torch.ones(3)
    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        for ours, expected in zip(compiled(x), program(x), strict=True):
            assert torch.equal(ours, expected) if isinstance(expected, torch.Tensor) else ours == expected
    assert list(lampwork.stats(compiled)["breaks"]) == []


def test_the_few_turns_of_a_cycle_are_an_entry_each():
    def program(x, names):
        name = next(names)
        return {name: x * 2}, name == "a"

    for letters, whole in (("ab", True), ("abcd", True), ("abcdefgh", False)):
        compiled = lampwork.compile(program, options={"cache": False})
        ours, theirs = itertools.cycle(letters), itertools.cycle(letters)
        for _ in range(11):
            assert str(compiled(torch.ones(1), ours)) == str(program(torch.ones(1), theirs))
        stats = lampwork.stats(compiled)
        assert (not stats["breaks"]) is whole and not stats["fallbacks"]
        assert not whole or stats["captures"] == len(letters)
