"""A program writes a constant to where a number lies that varies: that the number was the same in the call that was
captured makes it no less a write. (It was left out of the effects: objects kept what they had.)"""

from __future__ import annotations

import collections

import pytest
import torch

import lampwork


class Plain:
    pass


class Slots:
    __slots__ = ("v",)


def holder(cls):
    def make(value):
        made = cls()
        made.v = value
        return made

    return make


def attribute(x, o):
    y = x * o.v
    o.v = 3.0
    return y


def attribute_int(x, o):
    y = x * o.v
    o.v = 3
    return y


def first(x, o):
    y = x * o[0]
    o[0] = 3.0
    return y


def by_name(x, o):
    y = x * o["v"]
    o["v"] = 3.0
    return y


def of_tuple(x, o):
    y = x * o.v[0] + o.v[1]
    o.v = (3.0, 4.0)
    return y


def popped(x, o):
    y = x * o[0]
    o.pop()
    o.append(3.0)
    return y


def whole(x, o):
    y = x * sum(o.values())
    o["v"] = 3.0
    return y


def there_and_back(x, o):
    before = o.v
    o.v = 3.0
    y = x * o.v
    o.v = before
    return y


FLOATS = (2.0, 3.0, 5.0, 3.0, 7.0)
CASES = {
    "attribute": (attribute, holder(Plain), FLOATS),
    "slot": (attribute, holder(Slots), FLOATS),
    "module": (attribute, holder(torch.nn.Module), FLOATS),
    "int": (attribute_int, holder(Plain), (2, 3, 5, 7, 9)),
    "list": (first, lambda value: [value], FLOATS),
    "deque": (first, lambda value: collections.deque([value]), FLOATS),
    "dict": (by_name, lambda value: {"v": value}, FLOATS),
    "ordered": (by_name, lambda value: collections.OrderedDict(v=value), FLOATS),
    "whole dict": (whole, lambda value: {"v": value, "w": 1.0}, FLOATS),
    "tuple": (of_tuple, lambda value: holder(Plain)((value, 4.0)), FLOATS),
    "popped": (popped, lambda value: [value], FLOATS),
    "there and back": (there_and_back, holder(Plain), FLOATS),
}


def shown(o):
    return getattr(o, "v", o)


@pytest.mark.parametrize("name", CASES)
def test_writes(name):
    function, make, values = CASES[name]
    compiled = lampwork.compile(function, options={"cache": False})
    x = torch.ones(2)
    ours, theirs = make(values[0]), make(values[0])
    for _ in range(2):  # the second call finds what the first one wrote, which varies from then on
        assert torch.equal(compiled(x, ours), function(x, theirs))
    for value in values:
        ours, theirs = make(value), make(value)
        assert torch.equal(compiled(x, ours), function(x, theirs))
        assert shown(ours) == shown(theirs)
    assert lampwork.stats(compiled)["captures"] <= 4


FACTOR = 2.0


def of_global(x):
    global FACTOR
    y = x * FACTOR
    FACTOR = 3.0
    return y


def test_globals():
    global FACTOR
    compiled = lampwork.compile(of_global, options={"cache": False})
    for value in FLOATS:
        FACTOR = value
        assert compiled(torch.ones(2)).tolist() == [value, value] and FACTOR == 3.0
