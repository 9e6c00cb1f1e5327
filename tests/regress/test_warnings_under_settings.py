"""Warnings where the program itself says how warnings are shown, for a while: they were shown after it had put that back.
And PyTorch's own warnings there, which met the settings of the caller, once."""

from __future__ import annotations

import warnings

import pytest
import torch

import lampwork


def late(x):
    with warnings.catch_warnings(record=True) as kept:
        warnings.simplefilter("always")
        warnings.warn("first")
        if x.sum() > 0:
            warnings.warn("late")
    return [str(each.message) for each in kept]


def in_turn(action):
    def program(x):
        with warnings.catch_warnings(record=True) as kept:
            warnings.simplefilter(action)
            for turn in range(3):
                warnings.warn(f"turn {turn % 2}")
        return [str(each.message) for each in kept]

    program.__name__ = f"in_turn_{action}"
    return program


def shown_inside(x):
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("inside")
    return x + 1


def before_and_after(x):
    warnings.warn("before")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("between")
        torch.tensor(x)
    warnings.warn("after")
    return x + 1


def of_pytorch(action):
    def program(x):
        with warnings.catch_warnings(record=action == "always") as kept:
            warnings.simplefilter(action)
            try:
                torch.tensor(x)
            except UserWarning:
                return "raised"
        return "fine", [str(each.message)[:17] for each in kept or ()]

    program.__name__ = f"of_pytorch_{action}"
    return program


PROGRAMS = [
    late, in_turn("once"), in_turn("default"), in_turn("always"), shown_inside, before_and_after,
    of_pytorch("always"), of_pytorch("error"), of_pytorch("ignore"),
]  # fmt: skip


@pytest.mark.parametrize("outer", ["always", "default", "ignore"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__)
def test_as_eager(program, outer):
    def seen(function):
        globals().pop("__warningregistry__", None)
        warnings.onceregistry.clear()
        found = []
        for _ in range(3):
            with warnings.catch_warnings(record=True) as kept:
                warnings.simplefilter(outer)
                warnings.filterwarnings("ignore", category=lampwork.LampworkWarning)
                result = function(torch.ones(2))
            found.append((repr(result), [str(each.message) for each in kept]))
        return found

    expected = seen(program)
    assert seen(lampwork.compile(program, options={"cache": False})) == expected
