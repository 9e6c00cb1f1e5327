"""Objects of classes written in Python that derive from one in C with memory of its own: fields of structures, elements
of arrays, positions of streams were read natively, and nothing guarded them. So was what a method in C is bound to."""

from __future__ import annotations

import array
import ctypes
import io

import numpy
import pytest
import torch

import lampwork


class Structure(ctypes.Structure):
    _fields_ = (("field", ctypes.c_int),)


class Union(ctypes.Union):
    _fields_ = (("field", ctypes.c_int),)


class Samples(array.array):
    pass


class Bytes(bytearray):
    pass


class Stream(io.StringIO):
    pass


class Matrix(numpy.ndarray):
    pass


def store_field(held, value):
    held.field = value


def store_item(held, value):
    held[0] = value


READ = [
    (Structure(1), store_field, lambda held, x: x + held.field),
    (Structure(1), store_field, lambda held, x: x + getattr(held, "field")),
    (Union(1), store_field, lambda held, x: x + held.field),
    ((ctypes.c_int * 2)(1, 2), store_item, lambda held, x: x + held[0]),
    ((ctypes.c_int * 2)(1, 2), store_item, lambda held, x: x + sum(held)),
    (ctypes.pointer(ctypes.c_int(1)), store_item, lambda held, x: x + held[0]),
    (Samples("i", [1, 2]), store_item, lambda held, x: x + held[0]),
    (Samples("i", [1, 2]), store_item, lambda held, x: x + sum(held)),
    (Bytes(b"ab"), store_item, lambda held, x: x + held[0]),
    (Stream("abcd"), lambda held, value: held.seek(value), lambda held, x: x + held.tell()),
    (numpy.arange(3.0).view(Matrix), store_item, lambda held, x: x + held[0]),
]  # fmt: skip


@pytest.mark.parametrize(("held", "store", "program"), READ)
def test_what_is_written_between_calls(held, store, program):
    compiled, x = lampwork.compile(program), torch.arange(4.0)
    for value in (1, 2, 3, 1):
        store(held, value)
        assert torch.equal(compiled(held, x), program(held, x))


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda value: value.__add__, 1),
        (lambda value: (value + 0.5).__mul__, 2),
        (lambda value: [value].__getitem__, 0),
        (lambda value: {1: value}.__getitem__, 1),
        (lambda value: torch.full((4,), float(value)).__add__, 1),
    ],
)
def test_bound_methods(make, argument):
    def program(method, x):
        return x + method(argument)

    compiled, x = lampwork.compile(program), torch.arange(4.0)
    for value in (1, 2, 3, 1):
        assert torch.equal(compiled(make(value), x), program(make(value), x))
