"""`random.getstate` and `setstate`: the second number that `gauss` keeps is part of the state."""

from __future__ import annotations

import random

import pytest
import torch

import lampwork


def drawn_again(x):
    before = random.getstate()
    noise = random.gauss(0, 1)
    random.setstate(before)
    return x + noise, random.gauss(0, 1) == noise


def kept(x):
    state = random.getstate()
    value = random.random()
    return x * value, state, type(state)


def looked_into(x):
    version, *_ = random.getstate()
    return x + random.random(), version


def of_another(x, generator, state):
    generator.setstate(state)
    return x + generator.gauss(0, 1)


@pytest.mark.parametrize("program", [drawn_again, kept, looked_into])
def test_state(program):
    compiled = lampwork.compile(program)
    for seed in range(3):
        random.seed(seed)
        expected, after = program(torch.ones(2)), random.getstate()
        random.seed(seed)
        found = compiled(torch.ones(2))
        assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:]
        assert random.getstate() == after


def test_state_from_outside():
    compiled = lampwork.compile(of_another)
    for seed in range(3):
        state = random.Random(seed).getstate()
        expected = of_another(torch.ones(2), random.Random(9), state)
        assert torch.equal(compiled(torch.ones(2), random.Random(9), state), expected)
