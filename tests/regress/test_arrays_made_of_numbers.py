"""Functions of numpy that make an array of a number: they gave back the number, whose type and methods are others."""

from __future__ import annotations

import numpy
import pytest
import torch

import lampwork


def as_array(x):
    return numpy.asarray(numpy.sum(x.numpy()))


def as_tensor(x):
    return torch.from_numpy(numpy.asarray(x.numpy().mean()))


def array(x):
    return numpy.array(x.numpy().max())


def copies(x):
    number = x.numpy().sum()
    return numpy.copy(number), number.copy()


def contiguous(x):
    return numpy.ascontiguousarray(x.numpy().sum())


def written(x):
    number = x.numpy().sum()
    made = numpy.asarray(number)
    made += 1
    return made, number, isinstance(made, numpy.ndarray), isinstance(number, numpy.ndarray)


@pytest.mark.parametrize("program", [as_array, as_tensor, array, copies, contiguous, written], ids=lambda f: f.__name__)
def test_types_and_values(program):
    x = torch.arange(6.0)
    compiled = lampwork.compile(program)
    for _ in range(2):
        expected, actual = program(x), compiled(x)
        pairs = zip(expected, actual, strict=True) if type(expected) is tuple else [(expected, actual)]
        for theirs, ours in pairs:
            assert type(ours) is type(theirs)
            assert numpy.array_equal(theirs, ours) and numpy.shape(theirs) == numpy.shape(ours)
