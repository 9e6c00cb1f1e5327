"""When calls of ATen run: a product waits where what is computed for it is read behind another one, too."""

from __future__ import annotations

import pytest
import torch

import lampwork
from lampwork.ir.program import Extern, Launch, Program
from tests.unit.schedule.test_torch_patterns import floats, program_of

ROWS, WIDTH, NARROW = 512, 256, 8


def derivatives(x, g, w):
    """Of a layer behind an activation: its weight's needs the activation, its input's the activation's derivative."""
    t = torch.tanh(x)
    weight = torch.mm(torch.sin(t).t(), g)
    derivative = torch.mm(g, w) * torch.cos(t) * (1 - t * t)
    return weight + 1, torch.mm(derivative, w) + 1


def sharing_an_input(x, g, w):
    """The two kernels would have nothing in common but what they read."""
    weight = torch.mm(torch.sin(x).t(), g)
    return weight + 1, torch.mm(torch.mm(g, w) * torch.cos(x), w) + 1


def large_temporary(x, g, w):
    """To wait, the second product would have to keep the first, which is larger than what is shared."""
    t = torch.tanh(x)
    return torch.mm(torch.sin(t).t(), torch.mm(g, g)), torch.mm(x, w) * torch.cos(t)


def kinds(program: Program) -> str:
    return "".join("L" if isinstance(step, Launch) else "E" for step in program.steps)


@pytest.mark.parametrize("function", [derivatives, sharing_an_input])
def test_a_product_waits_for_the_kernel_that_shares_its_operand(function):
    x, g, w = floats((ROWS, WIDTH), (ROWS, WIDTH), (WIDTH, WIDTH))
    program = program_of(function, [x, g, w])
    assert kinds(program) == "ELEELL"  # g w; sin(t) and the derivative; both products of these; the results
    calls = [step for step in program.steps if isinstance(step, Extern)]
    assert program.buffers[calls[0].outputs[0]].shape == (ROWS, WIDTH)
    (made,) = [step for step in program.steps[:2] if isinstance(step, Launch)]
    assert len(made.buffers) == 4  # x, g w, and both results: nothing between them is stored
    compiled = lampwork.compile(function, options={"cache": False})
    torch.testing.assert_close(compiled(x, g, w), function(x, g, w), rtol=1e-3, atol=1e-3)


def test_a_product_does_not_wait_where_that_keeps_more():
    x, g, w = floats((ROWS, NARROW), (ROWS, ROWS), (NARROW, NARROW))
    program = program_of(large_temporary, [x, g, w])
    assert kinds(program) == "LEEEL"
    compiled = lampwork.compile(large_temporary, options={"cache": False})
    torch.testing.assert_close(compiled(x, g, w), large_temporary(x, g, w), rtol=1e-3, atol=1e-3)
