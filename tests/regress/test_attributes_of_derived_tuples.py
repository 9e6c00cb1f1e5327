"""What tuples of classes of the program's hold as attributes was lost where they left the region: `mock.call_args` was one
of them, and asking for its missing attributes never ended."""

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
