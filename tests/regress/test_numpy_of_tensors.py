"""Functions of numpy that are handed tensors: numpy asked the stand-ins of a capture for their memory, which they lack, and
the program got that error as its own."""

from __future__ import annotations

import numpy
import pytest
import torch

import lampwork


def shares(x):
    array = numpy.asarray(x)
    array += 1
    return array, x * 2


def copies(x):
    array = numpy.array(x)
    array += 1
    return array, x * 2


def copies_turned(x):
    return numpy.array(x.t()), x * 2


def joins(x):
    return numpy.stack([x, x + 1]), numpy.concatenate((x, x))


def wraps(x):
    return numpy.sin(x), numpy.add(x, numpy.ones(3, numpy.float32))


def takes_items(x):
    return numpy.array([x[0, 0], x[0, 1]]), numpy.full((2,), x[0, 0]), numpy.float64(x[0, 0])


def compares(x):
    return numpy.allclose(x, x), numpy.where(x > 0, x, 1)


def refuses(x):
    return numpy.asarray(x.clone().requires_grad_())


def _outcome(function, x):
    try:
        return function(x)
    except RuntimeError as error:
        return str(error)


def _equal(left, right):
    assert type(left) is type(right)
    if isinstance(left, torch.Tensor):
        assert left.dtype == right.dtype and torch.allclose(left, right)
    elif isinstance(left, numpy.ndarray):
        assert (left.dtype, left.strides) == (right.dtype, right.strides) and numpy.allclose(left, right)
    else:
        assert left == right


@pytest.mark.parametrize(
    "program",
    [shares, copies, copies_turned, joins, wraps, takes_items, compares, refuses],
    ids=lambda each: each.__name__,
)
def test_as_in_eager(program):
    compiled = lampwork.compile(program, options={"cache": False})
    for seed in range(2):
        x = torch.randn(2, 3, generator=torch.Generator().manual_seed(seed))
        y = x.clone()
        expected, found = _outcome(program, x), _outcome(compiled, y)
        assert torch.equal(x, y)
        if isinstance(expected, tuple):
            for pair in zip(expected, found, strict=True):
                _equal(*pair)
        else:
            _equal(expected, found)


def test_conversions_are_part_of_the_graph():
    for program in (shares, joins):
        lampwork.compile(program, fullgraph=True, options={"cache": False})(torch.ones(2, 3))
