"""Keys with a `__hash__` and `__eq__` in Python, in dicts and sets from outside: what they read is guarded."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import pytest
import torch

import lampwork


class Key:
    def __init__(self, *parts):
        self.parts = parts

    def __hash__(self):
        return hash(self.parts) % 5

    def __eq__(self, other):
        return type(other) is Key and self.parts == other.parts

    def __repr__(self):
        return f"Key{self.parts}"


@dataclass(frozen=True)
class Spec:
    width: int
    name: str = "a"


def got(x, table, *parts):
    key = Key(*parts)
    return x * table.get(key, 10.0), key in table, len(table)


def item(x, table, *parts):
    try:
        return x * table[Key(*parts)]
    except KeyError as error:
        return error.args[0].parts


def put(x, table, *parts):
    key = Key(*parts)
    if key not in table:
        table[key] = x * len(table)
    table.setdefault(Key("z"), 1.0)
    return table[key], [each.parts for each in table], table.pop(Key("w"), None)


def walked(x, table, *parts):
    return {key.parts: x * value for key, value in table.items()}


TABLES = [{Key("w"): 2.0, Key("b", 1): 0.5}, {Key("q"): 3.0}, {Key("b", 1): 4.0, Key("w"): 7.0}, {}]
ASKED = [("w",), ("q",), ("b", 1), ("w",), ("none",)]


@pytest.mark.parametrize("program", [got, item, put, walked])
def test_dict(program):
    compiled = lampwork.compile(program, options={"recompile_limit": 64})
    for parts in ASKED:
        for table in TABLES:
            mine, other = copy.deepcopy(table), copy.deepcopy(table)
            assert str(compiled(torch.ones(2), mine, *parts)) == str(program(torch.ones(2), other, *parts))
            assert str(mine) == str(other)


def added(x, seen, *parts):
    known = Key(*parts) in seen
    seen.add(Key(*parts))
    return x, known, len(seen)


def test_set():
    compiled = lampwork.compile(added)
    for names in ("", "a", "b", "ab", "a"):
        for name in "ab":
            mine, other = {Key(each) for each in names}, {Key(each) for each in names}
            assert compiled(torch.ones(2), mine, name)[1:] == added(torch.ones(2), other, name)[1:]
            assert mine == other


def by_spec(x, table, spec):
    if spec not in table:
        table[spec] = x * spec.width
    return table[spec] + 1, len(table)


def test_frozen_dataclass():
    compiled = lampwork.compile(by_spec)
    x = torch.ones(2)
    for table, spec in [
        ({}, Spec(1)),
        ({Spec(1): x}, Spec(1)),
        ({Spec(1, "b"): x}, Spec(1)),
        ({Spec(1): x}, Spec(1, "b")),
    ]:
        mine, other = dict(table), dict(table)
        assert str(compiled(x, mine, spec)) == str(by_spec(x, other, spec))
        assert str(mine) == str(other)


def test_key_that_changes():
    """The same key object with other contents is another key."""
    compiled = lampwork.compile(got)
    key = Key("w")
    for parts in (("w",), ("v",), ("w",)):
        key.parts = parts
        table = {key: 2.0}
        assert str(compiled(torch.ones(2), table, "w")) == str(got(torch.ones(2), table, "w"))
