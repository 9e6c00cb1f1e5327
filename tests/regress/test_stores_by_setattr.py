"""A `__setattr__` of the program's that hands on to C runs once: what it stored in a class, or in a slot, is stored as it
is. It was stored through the same method again, when the call was over."""

from __future__ import annotations

import torch

import lampwork


class Doubling(type):
    def __setattr__(cls, name, value):
        super().__setattr__(name, value * 2)


class Slotted:
    __slots__ = ("count", "deleted")

    def __init__(self):
        object.__setattr__(self, "count", 0)
        object.__setattr__(self, "deleted", 0)

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value * 2)

    def __delattr__(self, name):
        object.__delattr__(self, name)
        object.__setattr__(self, "deleted", self.deleted + 1)


def store(x, target):
    target.count = 1
    return x + target.count


def delete(x, target):
    del target.count
    return x + 1


def compiled(program):
    return lampwork.compile(program, options={"cache": False})


def test_of_a_metaclass():
    class Counted(metaclass=Doubling):
        pass

    def program(x):
        return store(x, Counted)

    run = compiled(program)
    for _ in range(2):
        assert run(torch.ones(1)).item() == 3
        assert Counted.count == 2


def test_of_slots():
    target = Slotted()
    run = compiled(store)
    for _ in range(2):
        assert run(torch.ones(1), target).item() == 3
        assert target.count == 2


def test_slots_deleted():
    run = compiled(delete)
    for _ in range(2):
        target = Slotted()
        run(torch.ones(1), target)
        assert target.deleted == 1 and not hasattr(target, "count")
