"""`name in table.keys()` hangs on that one key: others come and go, in any order, without another compile."""

from __future__ import annotations

import collections

import pytest
import torch

import lampwork


class Holder:
    table: dict = {}


holder = Holder()


def asks_for_one(x):
    keys = holder.table.keys()
    return x * 2 if "a" in keys and keys.__contains__("a") else x


def counts(x):
    return x * len(holder.table.keys())


def lists(x):
    return x + sum(ord(key) * place for place, key in enumerate(list(holder.table.keys()) + [*holder.table.keys()]))


def turns_around(x):
    return x + sum(ord(key) * place for place, key in enumerate(reversed(holder.table.keys())))


def is_empty(x):
    return -x if holder.table.keys() else x


def compares(x):
    return x + (holder.table.keys() == {"a"}) + 2 * ({"a", "b"} >= holder.table.keys())


def intersects(x):
    return x + len(holder.table.keys() & {"a"}) + 10 * len({"a", "b", "c"} - holder.table.keys())


def prints(x):
    return x + len(str(holder.table.keys())) + len(f"{holder.table.keys()}") + len(repr([holder.table.keys()]))


def lies_in_a_list(x):
    return x + (holder.table.keys() in [{"a"}]) + ((1, holder.table.keys()) == (1, {"a"}))


def asks_natively(x):
    keys = holder.table.keys()
    return x + keys.isdisjoint({"a"}) + len(dict.fromkeys(keys)) + len(set().union(keys)) + len(sorted(keys))


def is_written_between(x):
    keys = holder.table.keys()
    before = "a" in keys
    holder.table["q"] = 1
    found = x + before + 2 * ("q" in keys) + 4 * len(keys)
    del holder.table["q"]
    return found + 8 * ("q" in keys)


TABLES = [{"a": 1}, {"a": 1, "b": 2}, {"b": 2, "a": 1}, {"b": 2}, {}]


@pytest.mark.parametrize(
    "function",
    [asks_for_one, counts, lists, turns_around, is_empty, compares, intersects, prints, lies_in_a_list, asks_natively,
     is_written_between],
)  # fmt: skip
def test_what_is_seen_of_keys_is_as_eager_sees_it(function):
    compiled = lampwork.compile(function)
    x = torch.ones(3)
    for table in (*TABLES, *reversed(TABLES)):
        holder.table = dict(table)
        assert torch.equal(compiled(x), function(x))
        assert holder.table == table


def test_one_key_is_guarded_where_one_is_asked_for():
    compiled = lampwork.compile(asks_for_one)
    x = torch.ones(3)
    for table in (*TABLES, collections.OrderedDict(b=1, a=2)):
        holder.table = table
        assert torch.equal(compiled(x), asks_for_one(x))
    stats = lampwork.stats(compiled)
    assert stats["entries"] == 3  # with the key, without it, and in a dict of another class
    assert not stats["breaks"] and not stats["fallbacks"]
