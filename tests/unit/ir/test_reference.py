"""Digests by which another process tells that what it finds under a name is the same."""

from __future__ import annotations

import numpy.random

from lampwork.ir.reference import class_digest


class Annotated:
    a: int


class Other:
    b: int


def test_annotations_of_a_class_tell():
    digests = {class_digest(type("Made", (cls,), {})) for cls in (Annotated, Other)}
    assert len(digests) == 2


def test_a_class_whose_instances_have_annotations():
    """As functions of Cython: `__annotations__` of their class is a descriptor."""
    cls = type(numpy.random.Generator.random)
    assert type(vars(cls)["__annotations__"]) is not dict
    assert len(class_digest(cls)) == 24
