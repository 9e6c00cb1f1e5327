"""A tensor of several elements, or of none, has no truth value, and eager's own error says so. Where sizes vary, PyTorch
refused to count the elements, and its words about that reached the program."""

from __future__ import annotations

import pytest
import torch

import lampwork

ASKING = {
    "bool": bool,
    "not": lambda x: not x,
    "condition": lambda x: 1 if x > 0 else 2,
    "or": lambda x: x == x.clone() or x,
    "in": lambda x: x in [x.clone()],
    "index": lambda x: [x.clone()].index(x),
    "pairs": lambda x: (x, 1) == (x.clone(), 1),
    "largest": lambda x: max(x, x.clone()),
    "in order": lambda x: len(sorted([x, x.clone()])),
    "some of them": lambda x: bool(x[2:]),
    "found": lambda x: max(x[x > 0], x),
}


@pytest.mark.parametrize("asking", ASKING.values(), ids=ASKING)
def test_eager_s_error(asking):
    def program(x):
        try:
            return asking(x)
        except RuntimeError as error:
            return str(error)

    compiled = lampwork.compile(program, options={"cache": False})
    for size in (1, 2, 3, 4, 1):
        assert repr(compiled(torch.ones(size))) == repr(program(torch.ones(size)))
