"""What contents leave of a size may be less than nothing: a pad that cut off more than there was returned nothing where
eager raises, and a size of which one is taken could not be compiled."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork

PROGRAMS = {
    "pad of a count": lambda x: F.pad(torch.bincount(x % 5), (-1, 0)),
    "pad of what is picked": lambda x: F.pad(x[x > 0], (-1, 1)),
    "pad on both sides": lambda x: F.pad(x[x > 0], (-2, -1)),
    "zeros": lambda x: x.new_zeros(2, x[x > 1].shape[0] - 1),
    "expand": lambda x: x.sum().expand(x[x > 1].shape[0] - 2),
    "split": lambda x: x[x > 1].split([1, x[x > 1].shape[0] - 1])[1],
    "repeat": lambda x: x.repeat(x[x > 1].shape[0] - 2),
    "narrow": lambda x: x[x > 1].narrow(0, 1, x[x > 1].shape[0] - 2),
}


def outcome(function, x):
    try:
        return function(x).tolist()
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes(name):
    for first in range(4):  # which call is captured decides what is assumed
        compiled = lampwork.compile(PROGRAMS[name], options={"cache": False})
        calls = [torch.tensor(each, dtype=torch.int64) for each in ([3, 2, 4, 1, 2], [1], [], [0, 2])]
        for x in calls[first:] + calls[:first]:
            assert outcome(compiled, x) == outcome(PROGRAMS[name], x), x
