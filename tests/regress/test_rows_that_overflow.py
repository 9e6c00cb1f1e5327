"""Rows of 9 to 15 float32 numbers, whose mean has no square, were normalized to NaN where eager's result is 0: eager's
kernel on a CPU takes vectors of 32 bytes on machines with wider ones, too. Half types have twice as many in a vector."""

from __future__ import annotations

import math

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


@pytest.mark.parametrize("dtype", HUGE, ids=str)
@pytest.mark.parametrize("norm", ["layer", "group"])
def test_running_means_do_not_overflow(dtype, norm):
    """The sum of the row has no room in its type: eager's running mean has."""
    largest = torch.finfo(dtype).max
    program = (lambda x: F.layer_norm(x, x.shape[-1:])) if norm == "layer" else (lambda x: F.group_norm(x, 1))
    compiled = lampwork.compile(program, options={"cache": False})
    lanes = 32 // dtype.itemsize
    for length in (lanes + 1, lanes + 3, 31, 33, 100, 779):
        x = torch.zeros(1, 1, length, dtype=dtype)
        x[..., length - 3 :] = largest
        expected = program(x)
        assert expected.isfinite().all() and torch.equal(compiled(x), expected), length


def test_variances_of_large_numbers():
    x = torch.tensor([[1.5e308] * 4, [1.0, 2.0, 3.0, 4.0]], dtype=torch.float64)
    program = lambda x: torch.var_mean(x, 1)
    assert all(map(torch.allclose, lampwork.compile(program)(x), program(x)))


@pytest.mark.parametrize("layout", ["in order", "channels last", "with gaps", "reversed"])
@pytest.mark.parametrize("training", [True, False])
def test_scales_out_of_range_of_batch_norms(layout, training):
    """In rows eager computes x * scale + constant, which is NaN on one side; element by element it is infinite."""
    torch.manual_seed(0)
    x = torch.randn(4, 3, 5, 2)
    x = {
        "in order": lambda: x,
        "channels last": lambda: x.contiguous(memory_format=torch.channels_last),
        "with gaps": lambda: torch.stack([x, x], -1)[..., 0],
        "reversed": lambda: x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
    }[layout]()
    weight, bias = torch.tensor([math.inf, torch.finfo(torch.float32).max, 2.0]), torch.tensor([0.5, 0.25, 1.0])
    mean, variance = (None, None) if training else (torch.full((3,), 0.125), torch.full((3,), 0.5))
    program = lambda x, mean, variance, weight, bias: F.batch_norm(x, mean, variance, weight, bias, training)
    compiled = lampwork.compile(program, options={"cache": False})
    for shift in (bias, None):
        arguments = x, mean, variance, weight, shift
        torch.testing.assert_close(compiled(*arguments), program(*arguments), equal_nan=True)


@pytest.mark.parametrize("order", [2, 3, 0.5])
def test_norms_of_rows_that_may_be_one_number_long(order):
    """Eager takes no power of one number."""
    program = lambda x: torch.linalg.vector_norm(x.chunk(2)[1], order, 0)
    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    for length in (2, 3, 4, 7):
        x = torch.full((length, 2), 1e30)
        torch.testing.assert_close(compiled(x), program(x))


def test_products_that_overflow_on_the_way():
    """A factor 0 comes last: eager multiplies in an order of its own."""
    x = torch.tensor([3.0] * 100 + [0.0])
    assert lampwork.compile(lambda x: x.prod())(x) == 0 and lampwork.compile(lambda x: x.flip(0).prod())(x) == 0


def test_programs_do_not_double_with_each_element_of_a_row():
    """A running mean that is written out names each step twice."""
    texts = [
        str(lampwork.explain(lambda x: F.layer_norm(x, (x.shape[1],)), torch.ones(2, length, dtype=torch.bfloat16)))
        for length in (8, 15)
    ]
    assert len(texts[1]) < 2 * len(texts[0])
