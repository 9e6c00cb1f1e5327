"""Instances whose class the program has made of what it computes: the class came along, with what stood for its values while
the program was captured."""

from __future__ import annotations

import pytest
import torch

import lampwork


class Holder:
    box = None


def in_the_body(x):
    class Box:
        value = x * 2

    return Box().value, Box()


def in_a_list(x):
    class Box:
        values = [x * 2, {"a": x}]

    return Box()


def in_a_default(x):
    class Box:
        def get(self, value=x * 2):
            return value

    return Box()


def in_a_closure(x):
    y = x * 2

    class Box:
        @property
        def value(self):
            return y

    Holder.box = Box()
    return x + 1


def in_a_base(x):
    class Base:
        value = x * 2

    class Box(Base):
        pass

    return Box()


def by_type(x):
    return type("Box", (), {"value": x * 2})()


def an_error(x):
    class Wrong(Exception):
        value = x * 2

    return Wrong("told")


def a_size(x, n=None):
    class Box:
        size = x.shape[0] + 1

    return Box()


def look(result):
    """What a caller finds."""
    box = result[1] if type(result) is tuple else result
    box = Holder.box if isinstance(box, torch.Tensor) else box
    for name in ("value", "values", "size"):
        if hasattr(box, name):
            return str(getattr(box, name))
    return str(box.get() + 1)


PROGRAMS = [in_the_body, in_a_list, in_a_default, in_a_closure, in_a_base, by_type, an_error, a_size]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_what_a_caller_finds(program):
    compiled = lampwork.compile(program)
    for size in (2, 3, 4):
        x = torch.arange(1.0, size + 1)
        assert look(compiled(x)) == look(program(x))


def test_a_class_that_holds_nothing_of_it_goes_on_as_before():
    def program(x):
        class Box:
            factor = 2

            def __init__(self, value):
                self.value = value

            def get(self):
                return self.value * self.factor

        return Box(x + 1)

    compiled = lampwork.compile(program)
    for size in (2, 3):
        assert torch.equal(compiled(torch.ones(size)).get(), program(torch.ones(size)).get())
    assert not lampwork.stats(compiled)["fallbacks"]
