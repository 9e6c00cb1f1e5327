"""Facts of classes that a metaclass, or a base, has under the same name: the metaclass's own module, and an entry of a
class that comes before the one that the program writes to."""

from __future__ import annotations

import torch

import lampwork


class Meta(type):
    pass


class Named(metaclass=Meta):
    pass


class Base:
    pass


class Derived(Base):
    pass


class Mixin:
    value = 5.0


def test_the_module_of_a_class_is_not_its_metaclass_s():
    compiled = lampwork.compile(program := lambda x: x + len(repr(Named)))
    x = torch.ones(2)
    assert torch.equal(compiled(x), program(x))
    for name in ("__module__", "__qualname__"):
        before = getattr(Named, name)
        setattr(Named, name, "another_name")
        try:
            assert torch.equal(compiled(x), program(x))
        finally:
            setattr(Named, name, before)
    assert torch.equal(compiled(x), program(x))


def test_a_class_that_comes_before_the_one_that_is_written():
    def program(x):
        Base.value = x * 2
        return Derived.value

    compiled, x = lampwork.compile(program), torch.ones(2)
    try:
        assert torch.equal(compiled(x), x * 2)
        Derived.__bases__ = (Mixin, Base)
        assert compiled(x) == program(x) == 5.0
        Derived.__bases__ = (Base,)
        Derived.value = 7.0
        assert compiled(x) == program(x) == 7.0
        del Derived.value
        assert torch.equal(compiled(x), x * 2)
    finally:
        del Base.value
