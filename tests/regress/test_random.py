"""Random operators draw in program order, whatever they wait for."""

from __future__ import annotations

import contextlib
import math
import operator
import random

import numpy
import pytest
import torch
import torch.nn.functional as F

import lampwork


def test_a_draw_that_waits_for_a_product_stays_before_one_that_waits_for_nothing():
    def program(x, w):
        kept = torch.bernoulli((x @ w).sigmoid())
        return kept, torch.rand(5)

    arguments = torch.full((8, 16), 0.1), torch.full((16, 16), 0.1)
    compiled = lampwork.compile(program)
    torch.manual_seed(1)
    expected = program(*arguments)
    torch.manual_seed(1)
    found = compiled(*arguments)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected))


def test_a_number_that_fails_behind_the_graph_takes_no_draws_with_it():
    def program(x):
        drawn = torch.rand(3)
        return drawn + x, math.sqrt(x.sum().item())

    compiled = lampwork.compile(program, options={"cache": False})
    for value in (1.0, -1.0):
        states = []
        for function in (program, compiled):
            torch.manual_seed(0)
            with contextlib.suppress(ValueError):
                function(torch.full((3,), value))
            states.append(torch.get_rng_state())
        assert torch.equal(*states)


def test_a_mask_for_a_transposed_tensor_is_drawn_as_it_lies_in_memory():
    program = lambda x: F.dropout(x.transpose(0, 1), 0.5)
    compiled = lampwork.compile(program, options={"cache": False})
    x = torch.ones(3, 5)
    torch.manual_seed(0)
    expected = program(x)
    torch.manual_seed(0)
    assert torch.equal(compiled(x), expected)


def test_capture_draws_nothing():
    program = lambda x: torch.normal(1.0, 2.0, (3,), out=x) * 1
    compiled = lampwork.compile(program, options={"cache": False})
    torch.manual_seed(0)
    expected = program(torch.zeros(3))
    torch.manual_seed(0)
    assert torch.equal(compiled(torch.zeros(3)), expected)


@pytest.mark.parametrize("op", [operator.sub, operator.mul, operator.floordiv, operator.mod, operator.pow])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float16, torch.float32, torch.complex64])
@pytest.mark.parametrize(
    "draw", [random.random, lambda: numpy.random.choice([0.5, 2.0]), lambda: numpy.random.choice(3)]
)
def test_operators_beside_numbers_that_are_drawn(op, dtype, draw):
    """What eager refuses beside a float (differences of bools) was computed; numpy's numbers broke the graph."""
    outcomes = []
    for function in (op, lampwork.compile(lambda x, op=op: op(x, draw()))):
        random.seed(4), numpy.random.seed(4)
        x = torch.arange(1, 4).to(dtype)
        try:
            outcomes.append(function(x, draw()) if function is op else function(x))
        except Exception as error:
            outcomes.append((type(error), str(error)))
    if type(outcomes[0]) is tuple:
        assert outcomes[1] == outcomes[0]
    else:
        torch.testing.assert_close(outcomes[1], outcomes[0])
