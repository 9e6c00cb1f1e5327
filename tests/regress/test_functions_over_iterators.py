"""A `map` or `filter` from outside broke the graph where an element was taken; a `zip` of endless iterators never ended."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch

import lampwork

CALLS: list = []


def squared(value):
    CALLS.append(value)
    return value * value


def stops_at_three(value):
    if value == 3:
        raise StopIteration
    return value


def refuses_three(value):
    CALLS.append(value)
    if value == 3:
        raise ValueError("three")
    return value


def one(x, values):
    return x * next(values)


def all_of_them(x, values):
    return [x * value for value in values], next(values, None)


def two_or_nothing(x, values):
    return x, next(values, "end"), next(values, "end")


def caught(x, values):
    found = []
    try:
        for value in values:
            found.append(value)
    except ValueError as error:
        found.append(str(error))
    return x + len(found), found


MAKERS = {
    "abs": lambda numbers: map(abs, numbers),
    "function": lambda numbers: map(squared, numbers),
    "lambda": lambda numbers: map(lambda v: v + 1, numbers),
    "of two": lambda numbers: map(lambda a, b: a - b, numbers, itertools.count(5)),
    "of tensors": lambda numbers: map(lambda v: torch.full((2,), float(v)), numbers),
    "in a map": lambda numbers: map(squared, map(abs, numbers)),
    "in a zip": lambda numbers: (each[0] for each in ()) if not numbers else map(max, zip(numbers, numbers[::-1])),
    "stops": lambda numbers: map(stops_at_three, numbers),
    "refuses": lambda numbers: map(refuses_three, numbers),
    "filter": lambda numbers: filter(lambda v: v % 2, numbers),
    "true ones": lambda numbers: filter(None, numbers),
    "unequal lengths": lambda numbers: map(max, numbers, [9]),
}


@pytest.mark.parametrize("program", [one, all_of_them, two_or_nothing, caught])
@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_as_eager(program, maker):
    compiled = lampwork.compile(program, options={"cache": False})
    for numbers in ([-1, 2, 3, 4], [-1, 2, 3, 4], [0, -5, 0], [3], []):
        seen = []
        for function in (program, compiled):
            CALLS.clear()
            values = maker(list(numbers))
            try:
                result = str(function(torch.ones(2), values))
            except (StopIteration, ValueError) as error:
                result = repr(error)
            calls = copy.copy(CALLS)
            try:
                left = str(list(values))
            except ValueError as error:
                left = repr(error)
            seen.append((result, calls, left))
        assert seen[0] == seen[1]


@pytest.mark.parametrize("program", [one, two_or_nothing])
def test_no_break(program):
    compiled = lampwork.compile(program, fullgraph=True, options={"cache": False})
    for numbers in ([1, 2, 3], [4, 5, 6], [7, 8, 9]):
        ours, theirs = map(squared, numbers), map(squared, numbers)
        assert str(compiled(torch.ones(2), ours)) == str(program(torch.ones(2), theirs))
        assert list(ours) == list(theirs)


def test_another_function_misses():
    compiled = lampwork.compile(one, options={"cache": False})
    for function in (squared, abs, squared, lambda v: v + 1, lambda v: v - 1):
        found = compiled(torch.ones(2), map(function, [-3, 4]))
        assert torch.equal(found, one(torch.ones(2), map(function, [-3, 4])))


def test_shared_iterators_are_left_to_eager():
    def program(x, values, numbers):
        return x * next(values), next(numbers), next(values)

    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        seen = []
        for function in (program, compiled):
            numbers = iter([1, 2, 3, 4])
            seen.append(str((function(torch.ones(2), map(squared, numbers), numbers), list(numbers))))
        assert seen[0] == seen[1]


def endless(x, values):
    number, letter = next(values)
    return x * number, letter


@pytest.mark.parametrize(
    "maker", [lambda: zip(itertools.count(2), itertools.cycle("ab")), lambda: enumerate(itertools.cycle("ab"), 3)]
)
def test_endless(maker):
    compiled = lampwork.compile(endless, options={"cache": False})
    ours, theirs = maker(), maker()
    for _ in range(4):
        assert str(compiled(torch.ones(2), ours)) == str(endless(torch.ones(2), theirs))
    assert next(ours) == next(theirs)
