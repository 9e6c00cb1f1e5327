"""Rows of 9 to 15 float32 numbers, whose mean has no square, were normalized to NaN where eager's result is 0: eager's
kernel on a CPU takes vectors of 32 bytes on machines with wider ones, too. Half types have twice as many in a vector."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork

HUGE = {torch.float32: 1e22, torch.float64: 1e170, torch.bfloat16: 1e22}


@pytest.mark.parametrize("dtype", HUGE, ids=str)
@pytest.mark.parametrize("norm", ["layer", "group"])
def test_rows_that_overflow(dtype, norm):
    lanes = 32 // dtype.itemsize
    compiled = lampwork.compile(
        (lambda x: F.layer_norm(x, x.shape[-1:])) if norm == "layer" else (lambda x: F.group_norm(x, 1)),
        options={"cache": False, "recompile_limit": 64},
    )
    torch.manual_seed(0)
    for length in (1, 3, lanes - 1, lanes + 1, 2 * lanes - 1, 2 * lanes + 1, 5 * lanes - 3):
        x = ((torch.rand(2, 1, length, dtype=torch.float64) + 1) * HUGE[dtype]).to(dtype)
        expected = F.layer_norm(x, x.shape[-1:]) if norm == "layer" else F.group_norm(x, 1)
        assert torch.equal(compiled(x).isnan(), expected.isnan()), length
        assert expected.isnan().any() == (length < lanes)


@pytest.mark.parametrize("norm", ["layer", "group"])
def test_running_means_that_overflow(norm):
    """The mean is a number; that of the first elements is none."""
    largest = torch.finfo(torch.float32).max
    rows = [[largest, 1.0, -largest, 0.5], [-largest, 0.25, 0.5, largest], [1e19, 1.0, -1e19, 2.0]]
    x = torch.tensor(rows)[:, None]
    program = (lambda x: F.layer_norm(x, x.shape[-1:])) if norm == "layer" else (lambda x: F.group_norm(x, 1))
    assert torch.equal(lampwork.compile(program)(x).isnan(), program(x).isnan())


def test_sums_that_overflow():
    """Of half types, which eager's batch norms add up in single precision."""
    x = torch.tensor([[1.0, 3e38, 3e38, 2.0], [1.0, 2.0, 3e38, 4.0]], dtype=torch.bfloat16).view(2, 1, 4)
    program = lambda x: F.instance_norm(x)
    assert torch.equal(lampwork.compile(program)(x).isnan(), program(x).isnan())


def test_programs_do_not_double_with_each_element_of_a_row():
    """A running mean that is written out names each step twice."""
    texts = [
        str(lampwork.explain(lambda x: F.layer_norm(x, (x.shape[1],)), torch.ones(2, length, dtype=torch.bfloat16)))
        for length in (8, 15)
    ]
    assert len(texts[1]) < 2 * len(texts[0])
