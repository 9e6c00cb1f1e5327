"""A number that Python computes when the graph has run, of numbers that the call has and others that tensors hold. It was
taken for one that the call has, for which no text can be written: `RecursionError`."""

from __future__ import annotations

import math

import pytest
import torch

import lampwork

PROGRAMS = {
    "sum": lambda a, x: sum([a, x.mean().item()]),
    "floor": lambda a, x: x.mean().item() // a,
    "floor of": lambda a, x: a // x.mean().item(),
    "of several": lambda a, x: (a * 2 + 1) // x.mean().item() + a,
    "function": lambda a, x: math.atan2(a, x.mean().item()),
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_results(program, monkeypatch):
    monkeypatch.setenv("LAMPWORK_STRICT", "1")
    compiled = lampwork.compile(program, options={"cache": False})
    x = torch.full((3,), 3.5)
    for a in (1.5, 2.5, 3.5, 4.5, 5.5):
        assert compiled(a, x) == program(a, x)


def test_a_list_that_grows(monkeypatch):
    def program(values, x):
        values.append(x.sum().item())
        return sum(values)

    monkeypatch.setenv("LAMPWORK_STRICT", "1")
    compiled = lampwork.compile(program, options={"cache": False})
    for shift in (0.3, 0.7):
        ours, eager = [], []
        for number in (1.0, 2.0, 4.0, 8.0):
            x = torch.full((3,), number + shift)
            assert math.isclose(compiled(ours, x), program(eager, x), rel_tol=1e-6)
        assert len(ours) == len(eager)
