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


class Layers(torch.nn.Module):
    """Layers of which one meets a break."""

    def __init__(self, where):
        super().__init__()
        self.where = where
        self.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(6)])
        self.heads = torch.nn.ModuleDict({name: torch.nn.Linear(4, 4) for name in "abc"})
        self.last = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(2)])

    def forward(self, x):
        for index, layer in enumerate(self.layers):
            x = layer(x)
            if index == self.where:
                _numbers()
        for name, head in self.heads.items():
            x = x + head(x)
            if name == "a":
                _numbers()
        for layer, head in zip(self.layers, self.heads.values()):
            x = head(layer(x))
            if layer is self.layers[0]:
                _numbers()
        return self.last(x)


def test_what_follows_a_break_in_a_loop_is_one_region():
    model = Layers(1)
    compiled = lampwork.compile(model, options={"cache": False})
    for _ in range(2):
        x = torch.randn(3, 4)
        torch.testing.assert_close(compiled(x), model(x))
    stats = lampwork.stats(compiled)
    assert stats["captures"] == 4  # three breaks
    assert sum(each.count for each in stats["breaks"]) == 6
    assert {each.id for each in stats["breaks"]} == {"disabled"}


def test_turns_with_a_break_share_an_entry():
    def program(x, scales):
        for scale in scales:
            x = x * scale
            _numbers()
        for index in range(9):
            x = x + index
            _numbers()
        return x

    compiled = lampwork.compile(program, options={"cache": False})
    scales = [torch.full((2,), 0.5 + index) for index in range(12)]
    for _ in range(2):
        torch.testing.assert_close(compiled(torch.ones(2), scales), program(torch.ones(2), scales))
    stats = lampwork.stats(compiled)
    assert stats["captures"] <= 8  # the numbers of the second loop become symbols
    assert {each.id for each in stats["breaks"]} == {"disabled"}


def in_pairs(x, values):
    iterator, found = iter(values), []
    for pair in zip(iterator, iterator):
        _numbers()
        found.append(pair)
    return x, found


def taken_from_below(x, values):
    iterator, found = iter(values), []
    for index, value in enumerate(iterator):
        _numbers()
        found.append((index, value, next(iterator, None)))
    return x, found


def shrinks(x, values):
    found = []
    for value in values:
        _numbers()
        values.remove(value)
        found.append(value)
    return x, found


def from_both_ends(x, values):
    found = []
    for value, other in zip(values, reversed(values)):
        _numbers()
        found.append((value, other))
    for letter in "abc":
        _numbers()
        found.append(letter)
    return x, found


def left_early(x, values):
    iterator, found = iter(values), []
    for value in iterator:
        found.append(value)
        if value == 2.0:
            break
    _numbers()
    for value in iterator:
        found.append(value)
    return x, found, next(iterator, "end")


@pytest.mark.parametrize("program", [in_pairs, taken_from_below, shrinks, from_both_ends, left_early])
def test_iterators_go_on_where_they_stand(program):
    compiled = lampwork.compile(program, options={"cache": False})
    for count in (5, 5, 4, 0):
        expected, found = [float(each) for each in range(count)], [float(each) for each in range(count)]
        assert str(program(torch.ones(2), expected)) == str(compiled(torch.ones(2), found))
        assert found == expected


@pytest.mark.parametrize(
    "kind", [iter, reversed, lambda values: iter(tuple(values)), lambda values: zip(values, values)]
)
def test_an_iterator_of_the_caller_is_advanced(kind):
    def program(x, iterator):
        first = next(iterator)
        return x, first, next(iterator, 7.0)

    compiled = lampwork.compile(program, options={"cache": False})
    for values in ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [1.0]):
        expected, found = kind(values), kind(values)
        assert str(program(torch.ones(2), expected)) == str(compiled(torch.ones(2), found))
        assert list(expected) == list(found)
    assert not lampwork.stats(compiled)["breaks"]


def test_turns_that_all_differ_share_entries():
    """Were each turn an entry with all turns behind it, the limit of entries would be met."""
    layers = [torch.nn.Linear(4, 4) for _ in range(14)]

    def program(x, chosen):
        for number, layer in enumerate(layers):
            if bool((chosen == number).any()):
                x = layer(x) + number
        return x

    compiled = lampwork.compile(program, options={"cache": False})
    x = torch.randn(3, 4)
    with torch.no_grad():
        for chosen in ([0, 3, 9], [1], [13, 12, 2], [5, 6, 7, 8], list(range(14))):
            torch.testing.assert_close(compiled(x, torch.tensor(chosen)), program(x, torch.tensor(chosen)))
    stats = lampwork.stats(compiled)
    assert not stats["fallbacks"] and stats["captures"] <= 18
