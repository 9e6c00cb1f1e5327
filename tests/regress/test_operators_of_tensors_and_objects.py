"""Operators of tensors and of numpy's arrays that objects of the program's classes overload or take part in: of
`__torch_function__`, and of an `__index__` within an item of an array that the graph computes, native code called the
program's method beside the machine, and nothing guarded what it read."""

# ruff: noqa: F401 (the expressions are texts)

from __future__ import annotations

import numpy
import pytest
import torch

from tests.regress.test_special_methods_that_native_code_asks_for import Ix, check, iadd
from tests.sampled import one_of


class Overloads:
    def __init__(self, o):
        self.o = o

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        (found,) = [each for each in args if isinstance(each, Overloads)]
        return torch.tensor(float(found.o.k))


class OverloadsByItself:
    def __init__(self, o):
        self.o = o

    def __torch_function__(self, function, types, args=(), kwargs=None):
        return torch.tensor(float(self.o.k))


class OfNumpy:
    def __init__(self, o):
        self.o = o

    def __array_ufunc__(self, ufunc, method, *args, **kwargs):
        return self.o.k


class Array:
    def __init__(self, o):
        self.o = o

    def __array__(self, dtype=None, copy=None):
        return numpy.full(4, float(self.o.k))


array = numpy.arange(4.0)
SYMBOLS = "+ - * / // % ** @ & | ^ << >> < <= == != > >=".split()
EXPRESSIONS = [
    *[text.format(symbol) for symbol in SYMBOLS for text in ("Overloads(o) {} x", "x {} Overloads(o)")],
    *[text.format(symbol) for symbol in ("+", "<") for text in ("OverloadsByItself(o) {} x", "x {} OverloadsByItself(o)")],
    "iadd(x.clone(), Overloads(o))", "x.__radd__(Overloads(o))", "torch.Tensor.__add__(x, Overloads(o))",
    "max(Overloads(o), x[0])", "sum([x[0], Overloads(o)])", "pow(x, Overloads(o))", "[Overloads(o)] == [x[0]]",
    "array + OfNumpy(o)", "OfNumpy(o) * array", "array < OfNumpy(o)", "x.numpy() + OfNumpy(o)",
    "(numpy.float64(2) + Array(o)).sum()",
    "numpy.float64(2) * OfNumpy(o)",
    "numpy.float64(2) < OfNumpy(o)",
    "(array + Array(o)).sum()", "(array < Array(o)).sum()", "(x.numpy() + Array(o)).sum()", "array @ Array(o)",
    "iadd(array.copy(), Array(o)).sum()", "(x + Array(o)).sum()", "x[Array(o)].sum()",
    "x.numpy()[:Ix(o)].sum()", "x.numpy()[Ix(o):].sum()", "x.numpy()[0:4:Ix(o)].sum()", "x.numpy()[None, :Ix(o)].sum()",
    "x.numpy()[Ix(o)]", "x.numpy()[..., Ix(o)]", "x.numpy().reshape(Ix(o), -1).shape[0]", "x.numpy().var(ddof=Ix(o))",
    "numpy.reshape(x.numpy(), (-1, Ix(o))).shape[1]",
]  # fmt: skip


@pytest.mark.parametrize("expression", one_of(2, EXPRESSIONS))
def test_what_objects_make_of_operators(expression):
    check(expression, (1, 2, 4, 1), names=globals())
