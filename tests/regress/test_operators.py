"""The smallest program for each operator that once failed or fell back without need."""

from __future__ import annotations

import types

import pytest
import torch

from tests.ops.check import check_sample

OPERATOR = types.SimpleNamespace(name="program")


def integers():
    return torch.tensor([1, 2, 3])


def square():
    return torch.tensor([[2.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 4.0]])


#: Name: (program, arguments). Each gives eager's answer without falling back.
COMPILED = {
    "linalg checks errors at run time": (torch.linalg.inv, (square(),)),
}

#: Eager raises, and so does the compiled program.
RAISES = {
    "float result into an integer tensor": (lambda x: x.exp_(), (integers(),)),
    "float result into a bool tensor": (lambda x: x.sqrt_(), (integers() > 1,)),
    "a singular matrix": (torch.linalg.inv, (torch.zeros(2, 2),)),
}


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name):
    program, arguments = COMPILED[name]
    outcome = check_sample(OPERATOR, program, arguments, {})
    assert outcome.kind in ("native", "aten"), outcome


@pytest.mark.parametrize("name", RAISES)
def test_raises(name):
    program, arguments = RAISES[name]
    outcome = check_sample(OPERATOR, program, arguments, {})
    assert outcome.kind == "raises", outcome
