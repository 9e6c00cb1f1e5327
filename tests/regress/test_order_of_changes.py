"""What a program changes without looking at it first: the order of keys, deleting what was written, types of gradients.

An entry made where a key was there serves calls where it is not, and the reverse, as far as nobody can tell.
"""

from __future__ import annotations

import pytest
import torch

import lampwork


class Thing:
    pass


class Slots:
    __slots__ = ("a",)


def thing(**attributes):
    made = Thing()
    vars(made).update(attributes)
    return made


def puts_back(o, x):
    o["a"] = o.pop("a")


def writes_two(o, x):
    o.b = 1
    o.a = 2


def writes_and_deletes(o, x):
    o.a = 1
    o.b = 2
    del o.a


def deletes_and_writes(o, x):
    o.a = 1
    del o.a
    o.a = 2


CASES = {
    "a key that stood at the end, and one that did not": (
        puts_back,
        [lambda: {"b": 1, "a": 2}, lambda: {"a": 2, "b": 1}],
    ),
    "keys that were there, and were not": (writes_two, [lambda: thing(a=0), lambda: thing(), lambda: thing(b=0)]),
    "a written key that was not there": (writes_and_deletes, [lambda: thing(a=0), lambda: thing(), lambda: thing(a=1)]),
    "the other way round": (writes_and_deletes, [lambda: thing(), lambda: thing(a=0, b=0)]),
    "a key written again": (deletes_and_writes, [lambda: thing(b=0, a=0), lambda: thing(a=0, b=0), lambda: thing(b=0)]),
}


@pytest.mark.parametrize("name", CASES)
def test_keys(name):
    function, makers = CASES[name]
    compiled = lampwork.compile(function, options={"cache": False})
    for make in (*makers, makers[0]):
        found, expected = make(), make()
        compiled(found, torch.ones(1))
        function(expected, torch.ones(1))
        items = [list((each if isinstance(each, dict) else vars(each)).items()) for each in (found, expected)]
        assert items[0] == items[1]


def test_a_slot_that_is_written_and_deleted():
    compiled = lampwork.compile(writes_then_deletes_slot, options={"cache": False})
    for _ in range(2):
        for value in (1, None):
            target = Slots()
            if value is not None:
                target.a = value
            compiled(target, torch.ones(1))
            assert not hasattr(target, "a")


def writes_then_deletes_slot(o, x):
    o.a = 5
    del o.a


def test_an_equal_element_of_another_type():
    def program(group):
        group -= {1}
        group.add(True)

    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        group = {1, "text"}
        compiled(group)
        assert any(each is True for each in group)


def test_a_gradient_before_the_data_have_another_type():
    def program(leaf):
        (leaf * 3).sum().backward()
        leaf.data = leaf.detach().double()

    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        leaf = torch.ones(2, requires_grad=True)
        compiled(leaf)
        assert leaf.dtype == torch.float64 and leaf.grad.tolist() == [3, 3]
