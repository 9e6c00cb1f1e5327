"""Objects that become one, or become different, between two calls: whatever compares them by identity tells it.

`p == q`, `p in things` and `table.get(p)` ask for identity where a class has no `__eq__` of its own. Most of it is done by
native code, which no guard sees; so all objects of one kind that a program has met stay different.
"""

from __future__ import annotations

import collections
import functools
import operator

import pytest

from tests.soundness.noticing import follows, x4


class Part:
    def __init__(self, tag=0):
        self.tag = tag

    def method(self):
        return self.tag


class Equal:
    def __init__(self, tag=0):
        self.tag = tag

    def __eq__(self, other):
        return False

    def __hash__(self):
        return self.tag


ASKED = {
    "==": lambda p, q: 2 if p == q else 3,
    "!=": lambda p, q: 2 if p != q else 3,
    "operator.eq": lambda p, q: 2 if operator.eq(p, q) else 3,
    "object.__eq__": lambda p, q: 2 if object.__eq__(p, q) is True else 3,
    "in a list": lambda p, q: 2 if p in [q] else 3,
    "in a tuple": lambda p, q: 2 if p in (q,) else 3,
    "in a set": lambda p, q: 2 if p in {q} else 3,
    "in a dict": lambda p, q: 2 if p in {q: 1} else 3,
    "dict.get": lambda p, q: {q: 2}.get(p, 3),
    "dict.pop": lambda p, q: {q: 2}.pop(p, 3),
    "dict.setdefault": lambda p, q: {q: 2}.setdefault(p, 3),
    "a dict": lambda p, q: len({p: 1, q: 2}),
    "dict()": lambda p, q: len(dict([(p, 1), (q, 2)])),
    "dict.fromkeys": lambda p, q: len(dict.fromkeys([p, q])),
    "dict |": lambda p, q: len({p: 1} | {q: 2}),
    "Counter": lambda p, q: len(collections.Counter([p, q])),
    "a set": lambda p, q: len({p, q}),
    "set()": lambda p, q: len(set([p, q])),
    "frozenset()": lambda p, q: len(frozenset([p, q])),
    "set |": lambda p, q: len({p} | {q}),
    "set -": lambda p, q: 1 + len({p} - {q}),
    "list.count": lambda p, q: [p, q].count(p),
    "tuple.count": lambda p, q: (p, q).count(p),
    "deque.count": lambda p, q: collections.deque([p, q]).count(p),
    "list.index": lambda p, q: [q, p].index(p) + 2,
    "list ==": lambda p, q: 2 if [p] == [q] else 3,
    "tuple ==": lambda p, q: 2 if (p, 1) == (q, 1) else 3,
    "dict ==": lambda p, q: 2 if {1: p} == {1: q} else 3,
}
#: What asks the class first does not notice identity where that has an `__eq__`.
ASKS_EQUALITY_ONLY = {"==", "!=", "operator.eq"}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("kind", [Part, Equal, object, lambda: functools.partial(abs)])
def test_two_objects_become_one(asked, kind):
    ask = ASKED[asked]
    if kind is Equal and asked in ASKS_EQUALITY_ONLY:
        pytest.skip("two that are one are not equal either")
    one = kind()
    follows(lambda x, p, q: x * ask(p, q), (x4(), kind(), kind()), (x4(), one, one))


@pytest.mark.parametrize("asked", ASKED)
def test_one_object_becomes_two(asked):
    ask, one = ASKED[asked], Part()
    follows(lambda x, p, q: x * ask(p, q), (x4(), one, one), (x4(), Part(), Part()))


def _made():
    return lambda: 1


@pytest.mark.parametrize("asked", ASKED)
def test_functions_of_the_same_code(asked):
    ask, one = ASKED[asked], _made()
    follows(lambda x, p, q: x * ask(p, q), (x4(), _made(), _made()), (x4(), one, one))
    follows(lambda x, p, q: x * ask(p, q), (x4(), one, one), (x4(), _made(), _made()))


def test_methods_of_objects_that_become_one():
    one = Part()
    follows(lambda x, p, q: x * (2 if p.method == q.method else 3), (x4(), Part(), Part()), (x4(), one, one))
    follows(lambda x, p, q: x * (2 if p == q else 3), (x4(), Part().method, Part().method), (x4(), *[one.method] * 2))


@pytest.mark.parametrize("asked", ["in a list", "in a dict", "dict.get", "list ==", "deque"])
def test_containers_from_outside(asked):
    known, held = Part(), [Part()]
    listed, table, queue = [known], {known: 2}, collections.deque([known])
    ask = {
        "in a list": lambda p: 2 if p in listed else 3,
        "in a dict": lambda p: 2 if p in table else 3,
        "dict.get": lambda p: table.get(p, 3),
        "list ==": lambda p: 2 if listed == [p] else 3,
        "deque": lambda p: 2 + queue.count(p),
    }[asked]
    follows(lambda x: x * ask(held[0]), (x4(),), change=lambda: held.__setitem__(0, known))
