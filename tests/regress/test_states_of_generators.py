"""States of generators: of `random.getstate` the second number that `gauss` keeps is a part; numpy's seeds and states."""

from __future__ import annotations

import random

import numpy
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


def sown(x):
    numpy.random.seed(x.shape[0])
    return x * numpy.random.rand()


def sown_and_put_back(x):
    numpy.random.seed(seed=3)
    state = numpy.random.get_state()
    first = numpy.random.rand()
    numpy.random.set_state(state)
    return x * (first - numpy.random.rand()), numpy.random.normal()


def of_the_program(x):
    generator = numpy.random.RandomState(2)
    state = generator.get_state(legacy=False)
    first = generator.rand()
    generator.set_state(state)
    return x * (first - generator.rand())


@pytest.mark.parametrize("program", [sown, sown_and_put_back, of_the_program])
def test_numpys_generators(program):
    x, before = torch.ones(3), numpy.random.get_state()
    expected = [program(x) for _ in range(3)], numpy.random.rand()
    numpy.random.set_state(before)
    compiled = lampwork.compile(program, fullgraph=True)
    assert str(([compiled(x) for _ in range(3)], numpy.random.rand())) == str(expected)


def test_a_seed_that_numpy_refuses():
    def program(x):
        try:
            numpy.random.seed(-x.shape[0])
        except ValueError as error:
            return x + 1, str(error)

    compiled = lampwork.compile(program)
    assert compiled(torch.ones(3))[1] == program(torch.ones(3))[1]
