"""Frozen sets of native functions and methods, and of tuples with some, are looked up and gone through like those of
functions in Python: the call broke."""

from __future__ import annotations

import pytest
import torch

import lampwork

CHOSEN = frozenset()


def picked(x):
    x = x + 1 if torch.add in CHOSEN else x - 1
    x = x * 3 if ("mul", torch.mul) in CHOSEN else x
    return x * (len(CHOSEN) + 1)


def applied(x):
    for function in CHOSEN:
        if callable(function):
            x = function(x, x + 1)
    return x


SETS = (
    frozenset([torch.add, "a"]), frozenset([torch.mul]), frozenset([("mul", torch.mul), torch.add]),
    frozenset([torch.Tensor.mul, torch]), frozenset([frozenset([torch.add]), torch.add]), frozenset([torch.nn.Linear]),
)  # fmt: skip


@pytest.mark.parametrize("program", [picked, applied])
def test_several_sets(program, monkeypatch):
    compiled = lampwork.compile(program, fullgraph=True, options={"cache": False})
    x = torch.ones(2)
    for each in (*SETS, *SETS[:2]):
        if program is applied and not all(type(function) is type(torch.add) for function in each if callable(function)):
            continue
        monkeypatch.setitem(globals(), "CHOSEN", each)
        assert torch.equal(compiled(x), program(x))
