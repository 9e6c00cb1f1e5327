"""What tuples of classes of the program's hold as attributes was lost where they left the region: `mock.call_args` was one
of them, and asking for its missing attributes never ended. Frozen sets of such classes could not be made."""

from __future__ import annotations

from unittest import mock

import torch

import lampwork

OPTIONS = {"cache": False}


class Named(tuple):
    def __new__(cls, items, name=None):
        return tuple.__new__(cls, items)

    def __init__(self, items, name=None):
        self.name = name


class Closed(Named):
    """Answers for what it does not have."""

    def __getattribute__(self, name):
        if name == "__dict__":
            raise AttributeError(name)
        return tuple.__getattribute__(self, name)


class Box:
    pass


BOX = Box()


def makes(x):
    around = Named((x, [1]), "around")
    around.itself = [around]
    around.inner = Named((), x * 2)
    around.inner.back = around
    BOX.held = around, Closed((x,), "closed"), Named((2,))
    return around, around.inner


def test_attributes_leave_with_their_tuple():
    made = lampwork.compile(makes, options=OPTIONS, fullgraph=True)
    for _ in range(2):
        x = torch.ones(2)
        around, inner = made(x)
        assert list(vars(around)) == ["name", "itself", "inner"] and around.name == "around"
        assert around.itself[0] is around and around.inner is inner and inner.back is around
        assert around[0] is x and around[1] == [1] and torch.equal(inner.name, x * 2)
        held, closed, plain = BOX.held
        assert held is around and closed.name == "closed" and vars(plain) == {"name": None}


class Frozen(frozenset):
    pass


def freezes(x):
    made, plain = Frozen((1, 2)), Frozen("a")
    made.itself, made.doubled = made, x * 2
    return made, plain, {plain: x}


def test_frozen_sets_of_derived_classes():
    made = lampwork.compile(freezes, options=OPTIONS, fullgraph=True)
    for _ in range(2):
        x = torch.ones(2)
        found, plain, keyed = made(x)
        assert type(found) is Frozen and found == {1, 2} and found.itself is found
        assert torch.equal(found.doubled, x * 2)
        assert type(plain) is Frozen and plain == {"a"} and not vars(plain) and keyed[Frozen("a")] is x


def helper(x):
    return x * 2


def calls(x):
    return helper(x) + 1


def test_calls_of_a_mock():
    made = lampwork.compile(calls, options=OPTIONS)
    with mock.patch(f"{__name__}.helper", wraps=helper) as watched:
        for turn in range(2):
            x = torch.ones(2)
            assert torch.equal(made(x), x * 2 + 1)
            assert watched.call_count == turn + 1 and watched.call_args == mock.call(x)
        assert repr(watched.mock_calls) == repr([mock.call(torch.ones(2))] * 2)
