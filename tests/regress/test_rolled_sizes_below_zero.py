"""A remainder by a size that the bounds let be nothing: where a proof took the case that it is 0, it divided by it, and the
compiler failed. Eager's own error, for another statement, was not seen."""

from __future__ import annotations

import pytest
import torch

import lampwork


def rolled(x, y):
    return torch.roll(torch.unique(x)[1::3], 1, 0)


def rolled_after_a_write(x, y):
    found = torch.unique(x)
    found[:-1] = y[:-1]
    return torch.roll(found[1::3], 1, 0)


def outcome(function, *args):
    try:
        return function(*args).tolist()
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("program", [rolled, rolled_after_a_write])
def test_as_eager(program):
    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    for x, y in ((2, 3), (3, 3), (2, 2), (7, 7), (1, 1), (9, 3)):
        args = torch.arange(x) * 0.5, torch.arange(y) * 1.5
        assert outcome(compiled, *args) == outcome(program, *args)
