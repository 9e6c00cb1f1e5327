"""Descriptors read through the class: the smallest programs that once failed."""

from __future__ import annotations

import torch

import lampwork


class Sized:
    @property
    def scale(self):
        return 3


class Wide(Sized):
    __slots__ = ("width",)


def through_the_class(x):
    """Once ran the getter, on no object."""
    return x + isinstance(getattr(Wide, "scale"), property), type(Wide.width).__name__


def getter_of_a_property(x):
    return x * Sized.scale.fget(Wide())


def distribution(x):
    """Its constructor looks its parameters up in the class."""
    return torch.distributions.Chi2(x, validate_args=False).rate


def test_programs():
    x = torch.tensor([1.0, 2.0])
    for program in (through_the_class, getter_of_a_property, distribution):
        lampwork.reset()
        compiled = lampwork.compile(program, fullgraph=True, options={"cache": False})
        expected = program(x)
        found = compiled(x)
        if isinstance(expected, tuple):
            assert found[1] == expected[1]
            found, expected = found[0], expected[0]
        assert torch.equal(found, expected), program.__name__
