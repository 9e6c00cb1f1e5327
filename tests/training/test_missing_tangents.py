"""Which backward programs ask whether there is a tangent: those where what depends on it alone could be no zeros."""

from __future__ import annotations

import pytest
import torch

import lampwork


def told(function, *inputs):
    """The tangents that the backward program of the one entry is told about."""
    compiled = lampwork.compile(function, options={"cache": False})
    compiled(*inputs)
    (entry,) = compiled.__lampwork__.entries
    return entry.artifact.backward.told


@pytest.mark.parametrize(
    "name, function, expected",
    [
        ("one result", lambda x: x.sqrt(), ()),
        ("sums of tangents alone meet", lambda x: (x.sum(), x.t() * 2, -x / 4), ()),
        ("one is divided", lambda x: (x.sqrt(), x * 2), (0,)),
        ("both are", lambda x: (x.sqrt(), x.log()), (0, 1)),
        ("views of one", lambda x: (*(x.exp() + 1).chunk(2), x * 3), (0,)),
        ("two meet before the third", lambda x: ((y := x.sqrt()) * 2, y + 1, x * 3), (0, 1)),
        ("divided by zero", lambda x: (x / 0, x + 1), (0,)),
        ("times infinity", lambda x: (x * float("inf"), x + 1), (0,)),
    ],
)
def test_told(name, function, expected):
    assert told(function, torch.rand(4, 4, requires_grad=True)) == expected
