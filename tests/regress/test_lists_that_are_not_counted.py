"""`if things:` hangs on whether there are some, not on how many."""

from __future__ import annotations

import collections

import pytest
import torch

import lampwork


class Holder:
    things: object = None


holder = Holder()


def asks(x):
    return x + 1 if holder.things else x


def turns_around(x):
    return x + 1 if not holder.things else x * bool(holder.things)


def asks_and_counts(x):
    return x * len(holder.things) if holder.things else x


def asks_after_writing(x):
    holder.things["b"] = 1
    found = x + 1 if holder.things else x
    del holder.things["b"]
    return found * 2 if holder.things else found


class Mine(list):
    def __bool__(self):
        return len(self) > 1


class Counted(list):
    def __len__(self):
        return 0


LISTS = [[], [1], [1, 2], [1, 2, 3]]
OTHERS = [{}, {"a": 1}, {"a": 1, "b": 2}, {1}, set(), collections.deque([1, 2]), collections.deque(), (), (1,),
          collections.OrderedDict(a=1), Mine([1]), Mine([1, 2]), Counted([1]), None, 0]  # fmt: skip


@pytest.mark.parametrize("function", [asks, turns_around, asks_and_counts])
def test_what_is_empty_is_told_from_what_is_not(function):
    compiled = lampwork.compile(function)
    for things in (*LISTS, *OTHERS, *reversed(LISTS)):
        holder.things = things
        assert torch.equal(compiled(torch.ones(3)), function(torch.ones(3))), things


def test_dicts_that_are_written_between():
    compiled = lampwork.compile(asks_after_writing)
    for things in ({}, {"a": 1}, {"b": 2}, {"a": 1, "c": 2}, {}):
        results = []
        for run in (asks_after_writing, compiled):
            holder.things = dict(things)
            results.append((run(torch.ones(3)).tolist(), dict(holder.things)))
        assert results[0] == results[1]


def test_lengths_share_an_entry():
    compiled = lampwork.compile(asks)
    for things in (*LISTS, list(range(9)), [None]):
        holder.things = things
        compiled(torch.ones(3))
    assert lampwork.stats(compiled)["entries"] == 2
