"""A list of numbers that were drawn was refused by `random.shuffle`: it broke the graph."""

from __future__ import annotations

import random

import pytest
import torch

import lampwork


def drawn(x, generator):
    picks = generator.sample(range(10), 3)
    picks[0] = picks[0] + 1
    generator.shuffle(picks)
    return x * generator.uniform(1, 2), picks


def drawn_and_known(x, generator):
    values = [generator.random(), 0.5, 2.0]
    generator.shuffle(values)
    return x * values[0], values


def letters(x, generator):
    values = list("abcd")
    generator.shuffle(values)
    return x, values


def of_sizes(x, generator):
    values = [len(x), 7, 9]
    generator.shuffle(values)
    return x, values


def of_tensors_numbers(x, generator):
    values = [x.sum().item(), 1.0]
    generator.shuffle(values)
    return x, values


def mixed(x, generator):
    values = [1, 2.0, "a", None]
    generator.shuffle(values)
    return x, values


@pytest.mark.parametrize("program", [drawn, drawn_and_known, letters, of_sizes, of_tensors_numbers, mixed])
def test_as_eager(program):
    breaks = program in (of_tensors_numbers, mixed)
    compiled = lampwork.compile(program, fullgraph=not breaks, options={"cache": False})
    ours, theirs = random.Random(3), random.Random(3)
    for size in (3, 4, 3, 5, 6):
        x = torch.ones(size)
        assert str(compiled(x, ours)) == str(program(x, theirs))
        assert ours.getstate() == theirs.getstate()
