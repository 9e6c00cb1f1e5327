"""What a program asks of a class changes between two calls: its names, bases, metaclass, and who is registered with it."""

from __future__ import annotations

import abc
import collections
import inspect
import numbers

import pytest
import torch

from tests.soundness.noticing import follows, x4


class Known:
    pass


def _missing(value):
    try:
        value.missing
    except AttributeError as error:
        return str(error)


def _set(name, value):
    return lambda cls, base, other: setattr(cls, name, value)


def _mixed_in(cls, base, other):
    cls.__bases__ = (base, other)


def _known(cls, base, other):
    cls.__bases__ = (base, Known)


def _before(cls, base, other):
    other.number = 7
    cls.__bases__ = (other, base)


#: name -> (number of a class and an object of it, change).
ASKED = {
    "__name__": (lambda cls, value: len(cls.__name__), _set("__name__", "Longer")),
    "__name__ of type()": (lambda cls, value: len(type(value).__name__), _set("__name__", "Longer")),
    "__name__ of __class__": (lambda cls, value: len(value.__class__.__name__), _set("__name__", "Longer")),
    "__qualname__": (lambda cls, value: len(cls.__qualname__), _set("__qualname__", "Longer")),
    "__module__": (lambda cls, value: len(cls.__module__), _set("__module__", "longer")),
    "__doc__": (lambda cls, value: len(cls.__doc__), _set("__doc__", "longer")),
    "repr": (lambda cls, value: len(repr(cls)), _set("__qualname__", "Longer")),
    "a text": (lambda cls, value: len(f"{cls}"), _set("__qualname__", "Longer")),
    "torch.typename": (lambda cls, value: len(torch.typename(value)), _set("__qualname__", "Longer")),
    "AttributeError": (lambda cls, value: len(_missing(value)), _set("__name__", "Longer")),
    "AttributeError of a class": (lambda cls, value: len(_missing(cls)), _set("__name__", "Longer")),
    "__abstractmethods__": (
        lambda cls, value: 2 if getattr(cls, "__abstractmethods__", None) else 3,
        _set("__abstractmethods__", frozenset({"a"})),
    ),
    "__annotations__": (lambda cls, value: 1 + len(cls.__annotations__), _set("__annotations__", {"a": int})),
    "__mro__": (lambda cls, value: len(cls.__mro__), _mixed_in),
    "mro()": (lambda cls, value: len(cls.mro()), _mixed_in),
    "inspect.getmro": (lambda cls, value: len(inspect.getmro(cls)), _mixed_in),
    "__bases__": (lambda cls, value: len(cls.__bases__), _mixed_in),
    "dir": (lambda cls, value: 2 if "number" in dir(value) else 3, _before),
    "a class in the __mro__": (lambda cls, value: 2 if Known in cls.__mro__ else 3, _known),
    "isinstance": (lambda cls, value: 2 if isinstance(value, Known) else 3, _known),
    "isinstance of one of": (lambda cls, value: 2 if isinstance(value, (int, Known)) else 3, _known),
    "isinstance of a union": (lambda cls, value: 2 if isinstance(value, int | Known) else 3, _known),
    "issubclass": (lambda cls, value: 2 if issubclass(cls, Known) else 3, _known),
    "super": (lambda cls, value: getattr(super(cls, value), "number", 5), _before),
    "an inherited attribute": (lambda cls, value: getattr(cls, "number", 5), _before),
    "bases of a class that is made": (lambda cls, value: len(type("Made", (cls,), {}).__mro__), _mixed_in),
    "isinstance of a class that is made": (
        lambda cls, value: 2 if isinstance(type("Made", (cls,), {})(), Known) else 3,
        _known,
    ),
    "__eq__ where elements are counted": (
        lambda cls, value: 2 + [value].count(7),
        _set("__eq__", lambda self, other: True),
    ),
    "__hash__ of a key": (lambda cls, value: _keys(value), _set("__hash__", None)),
    "__init_subclass__": (
        lambda cls, value: type("Made", (cls,), {"number": 2}).number,
        _set("__init_subclass__", classmethod(lambda cls: setattr(cls, "number", 5))),
    ),
}


def _keys(value):
    try:
        return len({value: 1, 7: 2})
    except TypeError:
        return 5


@pytest.mark.parametrize("asked", ASKED)
def test_a_class(asked):
    class Base:
        pass

    class Part(Base):
        """doc"""

    class Other:
        pass

    (ask, change), value = ASKED[asked], Part()
    follows(lambda x: x * ask(Part, value), (x4(),), change=lambda: change(Part, Base, Other))


def test_bases_of_exceptions():
    class First(Exception):
        pass

    class Second(Exception):
        pass

    class Raised(Second):
        pass

    def program(x):
        try:
            raise Raised
        except First:
            return x * 2
        except Exception:
            return x * 3

    follows(program, (x4(),), change=lambda: setattr(Raised, "__bases__", (First,)))


@pytest.mark.parametrize(
    "ask", [lambda value, cls: isinstance(value, cls), lambda value, cls: issubclass(type(value), cls)]
)
@pytest.mark.parametrize("where", ["itself", "a base", "with a subclass", "collections.abc", "numbers"])
def test_registration_with_an_abstract_class(ask, where):
    class Shape(abc.ABC):
        pass

    class Derived(Shape):
        pass

    class Base:
        pass

    class Part(Base):
        pass

    value = Part()
    shape = {"collections.abc": collections.abc.Mapping, "numbers": numbers.Number}.get(where, Shape)
    registers = Derived if where == "with a subclass" else shape
    follows(
        lambda x: x * (2 if ask(value, shape) else 3), (x4(),),
        change=lambda: registers.register(Base if where == "a base" else Part),
    )  # fmt: skip


def _meta(name, method):
    return lambda meta: setattr(meta, name, method)


ASKED_OF_METACLASSES = {
    "__instancecheck__": (lambda cls: 2 if isinstance(3, cls) else 3, _meta("__instancecheck__", lambda cls, value: True)),
    "__subclasscheck__": (lambda cls: 2 if issubclass(int, cls) else 3, _meta("__subclasscheck__", lambda cls, value: True)),
    "__eq__": (lambda cls: 2 if cls == Known else 3, _meta("__eq__", lambda cls, other: True)),
    "__call__": (lambda cls: getattr(cls(), "denominator", 3), _meta("__call__", lambda cls: 1)),
    "__bool__": (lambda cls: 2 if cls else 3, _meta("__bool__", lambda cls: False)),
    "an attribute": (lambda cls: getattr(cls, "number", 3), _meta("number", 5)),
}  # fmt: skip


@pytest.mark.parametrize("asked", ASKED_OF_METACLASSES)
def test_a_metaclass(asked):
    class Meta(type):
        pass

    class Part(metaclass=Meta):
        pass

    ask, change = ASKED_OF_METACLASSES[asked]
    follows(lambda x: x * ask(Part), (x4(),), change=lambda: change(Meta))


def test_a_metaclass_is_asked_of_tensors():
    class Meta(type):
        least = 3

        def __instancecheck__(cls, value):
            return value.dim() == 1 and value.shape[0] >= cls.least

    class Vector(metaclass=Meta):
        pass

    follows(
        lambda x: x * (2 if isinstance(x, Vector) else 3), (x4(),), change=lambda: setattr(Meta, "least", 5)
    )  # fmt: skip


def test_a_class_that_a_property_tells():
    class Part:
        told = Known

        @property
        def __class__(self):
            return self.told

    value = Part()
    program = lambda x: x * (2 if isinstance(value, Known) else 3)
    follows(program, (x4(),), change=lambda: setattr(Part, "told", int))


def test_an_attribute_is_added_to_tensors():
    try:
        follows(
            lambda x: x * (2 if hasattr(x, "added") else 3), (x4(),),
            change=lambda: setattr(torch.Tensor, "added", 1),
        )  # fmt: skip
    finally:
        del torch.Tensor.added


def test_methods_of_unnamed_bases_that_super_finds():
    def made(number):
        return lambda self: number

    class Base:
        method = made(2)

    class Part(Base):
        def method(self):
            return super().method()

    value = Part()
    follows(lambda x: x * value.method(), (x4(),), change=lambda: setattr(Base, "method", made(5)))
