"""Objects made, effects applied in order, identity and cycles kept."""

from __future__ import annotations

import collections
import functools
import types

import pytest
import torch

from lampwork.ir.number import applied, constant, leaf
from lampwork.ir.reference import reference
from lampwork.ir.region import Raise, Return
from lampwork.ir.source import Argument
from lampwork.ir.template import (
    AdvanceIterator,
    CallSetAttribute,
    ConstantValue,
    DeleteAttribute,
    DeleteItem,
    NewCall,
    NewCell,
    NewDeque,
    NewDict,
    NewFunction,
    NewList,
    NewMethod,
    NewObject,
    NewSet,
    NewSlice,
    NewTuple,
    NewValue,
    NumberValue,
    ObjectValue,
    ReplaceDict,
    ReplaceItems,
    ReplaceSet,
    ScalarValue,
    SetAttribute,
    SetCell,
    SetItem,
    SetState,
    SourceValue,
    TensorValue,
)
from lampwork.runtime.leave.reconstruction import TemplateWriter, sources_of
from lampwork.runtime.leave.user_frames import raise_it

Point = collections.namedtuple("Point", "x y")


class Box:
    def __init__(self):
        raise AssertionError("__init__ must not run")

    def method(self):
        return self


class Slotted:
    __slots__ = ("a",)


class Listy(list):
    pass


class Failure(ValueError):
    pass


def run(objects=(), effects=(), outcome=None, arguments=(), results=(), kept=frozenset()):
    outcome = outcome if isinstance(outcome, (Return, Raise)) else Return(outcome)
    sources = sources_of(objects, effects, outcome)
    values = tuple(arguments[source.index] for source in sources)
    writer = TemplateWriter(objects, {id(each): f"values[{index}]" for index, each in enumerate(sources)}, kept)
    lines = [line for part in writer.write(effects, outcome) for line in part]
    namespace = {**writer.constants, "leave": raise_it}
    exec("def end(values, results):\n" + "".join(f"    {line}\n" for line in lines), namespace)
    return namespace["end"](values, results)


def constants(*values):
    return tuple(ConstantValue(value) for value in values)


A, B = SourceValue(Argument(0)), SourceValue(Argument(1))
NONE = ConstantValue(None)


@pytest.mark.parametrize(
    ("thing", "expected"),
    [
        (NewTuple(constants(1, "a")), (1, "a")),
        (NewTuple(()), ()),
        (NewTuple(constants(1, 2), reference(Point)), Point(1, 2)),
        (NewTuple(constants(3, 4), reference(torch.Size)), torch.Size([3, 4])),
        (NewTuple(constants(5, 6), reference(torch.return_types.max)), torch.return_types.max((5, 6))),
        (NewList(constants(1, 2)), [1, 2]),
        (NewSet(constants(1, 2)), {1, 2}),
        (NewSet(constants(1, 2), frozen=True), frozenset({1, 2})),
        (NewDict(((ConstantValue("a"), ConstantValue(1)),)), {"a": 1}),
        (NewDeque(constants(1, 2), 2), collections.deque([1, 2], 2)),
        (NewSlice(*constants(1, None, 2)), slice(1, None, 2)),
        (NewObject(reference(Listy), items=constants(1, 2)), Listy([1, 2])),
        (
            NewObject(reference(collections.OrderedDict), pairs=((ConstantValue("a"), ConstantValue(1)),)),
            collections.OrderedDict(a=1),
        ),
        (NewCall(reference(range), constants(1, 5)), range(1, 5)),
        (NewCell(ConstantValue(3)), types.CellType(3)),
    ],
)
def test_each_object(thing, expected):
    made = run((thing,), outcome=NewValue(0))
    assert type(made) is type(expected) and made == expected
    assert getattr(made, "maxlen", None) == getattr(expected, "maxlen", None)


def test_instances_are_made_without_init():
    made = run((NewObject(reference(Box), (("x", ConstantValue(1)),)),), outcome=NewValue(0))
    assert type(made) is Box and made.__dict__ == {"x": 1}
    made = run((NewObject(reference(Slotted), slots=(("a", ConstantValue(2)),)),), outcome=NewValue(0))
    assert made.a == 2


def test_functions_and_methods():
    def make():
        value = None

        def inner(a, b=1, *, c=2):
            return a, b, c, value

        return inner

    code = make().__code__
    objects = (
        NewCell(ConstantValue(9)),
        NewTuple(constants(5)),
        NewDict(((ConstantValue("c"), ConstantValue(6)),)),
        NewFunction(
            code, A, "inner", "make.inner", NewValue(1), NewValue(2), (NewValue(0),), (("mark", ConstantValue(1)),)
        ),
        NewObject(reference(Box)),
        NewMethod(ObjectValue(reference(Box.method)), NewValue(4)),
        NewCall(reference(functools.partial), (NewValue(3), ConstantValue(7))),
        NewTuple((NewValue(3), NewValue(5), NewValue(6), NewValue(4))),
    )
    function, method, partial, box = run(objects, outcome=NewValue(7), arguments=(globals(),))
    assert function(0) == (0, 5, 6, 9) and function.mark == 1 and function.__qualname__ == "make.inner"
    assert function.__globals__ is globals() and method() is box and partial() == (7, 5, 6, 9)


def test_identity_and_cycles():
    """a list that holds a dict that holds the list; a tuple in the cycle; one object named twice."""
    objects = (
        NewList((NewValue(1), NewValue(2))),
        NewDict(((ConstantValue("list"), NewValue(0)),)),
        NewTuple((NewValue(0), NewValue(3))),
        NewList(()),
        NewTuple((NewValue(0), NewValue(3))),
    )
    whole, empty = run(objects, outcome=NewValue(4))
    assert whole[0]["list"] is whole and whole[1][0] is whole and whole[1][1] is empty


def test_tensors_and_numbers():
    x = torch.ones(2)
    parameter = TensorValue(0, reference(torch.nn.Parameter), True)
    made = run(
        (NewTuple((parameter, parameter, ScalarValue(1, "int"), ScalarValue(1, "bool"))),),
        (),
        NewValue(0),
        (),
        (x, 3.0),
    )
    assert type(made[0]) is torch.nn.Parameter and made[0] is made[1] and made[0].requires_grad
    assert made[2:] == (3, True) and type(made[2]) is int and type(made[3]) is bool


def test_effects_on_containers():
    items, table, queue, group = [1, 2, 3], {"a": 1}, collections.deque([1, 2, 3]), {1}
    args = (items, table, queue, group)
    at = [SourceValue(Argument(index)) for index in range(4)]
    effects = (
        ReplaceItems(at[0], 1, constants(9)), SetItem(at[0], *constants(0, 8)), ReplaceItems(at[0], None, constants(7)),
        DeleteItem(at[1], ConstantValue("a")), SetItem(at[1], ConstantValue("b"), ConstantValue(2)),
        ReplaceItems(at[2], 1, constants(5)), ReplaceSet(at[3], constants(2, 3)),
    )  # fmt: skip
    assert run((), effects, NONE, args) is None
    assert items == [8, 9, 7] and table == {"b": 2} and queue == collections.deque([1, 5]) and group == {2, 3}
    ordered = collections.OrderedDict(a=1, b=2)
    pairs = tuple(zip(constants("b", "a"), constants(3, 4)))
    run((), (ReplaceDict(A, pairs),), NONE, (ordered,))
    assert list(ordered.items()) == [("b", 3), ("a", 4)]


def test_effects_on_objects():
    class Thing:
        def __setattr__(self, name, value):
            raise AssertionError("__setattr__ of the program must not run")

    thing = Thing()
    thing.__dict__["old"] = 1
    leaf = torch.ones(2, requires_grad=True)
    gradient = torch.zeros(2)
    value = 1

    def closed():
        return value

    effects = (
        SetAttribute(A, "new", ConstantValue(2)), DeleteAttribute(A, "old"), CallSetAttribute(B, "grad", TensorValue(0)),
        SetCell(SourceValue(Argument(2)), 0, ConstantValue(5)),
    )  # fmt: skip
    run((), effects, NONE, (thing, leaf, closed), (gradient,))
    assert vars(thing) == {"new": 2} and leaf.grad is gradient and closed() == 5


def test_effects_on_process_state_and_iterators():
    iterator = iter([1, 2, 3, 4])
    with torch.enable_grad():
        run((), (SetState("grad_mode", ConstantValue(False)), AdvanceIterator(A, 2)), NONE, (iterator,))
        assert not torch.is_grad_enabled()
    assert next(iterator) == 3
    run((), (AdvanceIterator(A, 0, exhausted=True),), NONE, (iterator,))
    assert next(iterator, None) is None


def test_sources_are_what_they_were_before_any_effect():
    items = [1]
    swapped = run(
        (NewTuple((A, B)),),
        (SetItem(A, ConstantValue(0), B), SetItem(B, ConstantValue(0), A)),
        NewValue(0),
        (items, [2]),
    )
    assert swapped[0] is items and items[0] is swapped[1] and swapped[1][0] is items


def test_a_result_is_made_before_any_effect():
    """What it is made of may be changed by them: a list, the size of a tensor, a number that is computed."""
    items, x = [1, 2], torch.ones(3)
    size = NumberValue(applied("mul", constant(2), leaf(Argument(1), "shape", 0)))
    effects = (ReplaceItems(A, 0, constants(9)), CallSetAttribute(B, "data", TensorValue(0)))
    objects = (NewCall(reference(tuple), (A,)), NewTuple((NewValue(0), size, ScalarValue(0, "len"))))
    assert run(objects, effects, NewValue(1), (items, x), (torch.ones(5),)) == ((1, 2), 6, 5)
    assert items == [9] and x.shape == (5,)
    x = torch.ones(3)
    assert run((), effects[1:], size, (items, x), (torch.ones(5),)) == 6
    with pytest.raises(Failure, match="6"):
        run(
            (NewObject(reference(Failure), items=(size,)),),
            effects[1:],
            Raise(NewValue(0)),
            (items, torch.ones(3)),
            (x,),
        )


def test_a_raised_exception():
    made = NewObject(reference(Failure), items=constants("message"))
    with pytest.raises(Failure, match="message"):
        run((made,), (), Raise(NewValue(0)))


def test_effects_come_before_a_raise():
    items = []
    with pytest.raises(Failure):
        run((NewObject(reference(Failure)),), (ReplaceItems(A, None, constants(1)),), Raise(NewValue(0)), (items,))
    assert items == [1]
