"""Sums over all elements of a reshaped tensor whose memory is read several times: the dimension that is repeated is a loop
of its own, and the others are one."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork
from tests.unit.codegen.triton.interpret import available
from tests.unit.codegen.triton.programs import assert_like_eager

SHAPES = [((2, 2, 2), (2, 0, 1)), ((4, 3, 8), (8, 0, 1)), ((3, 2, 4, 5), (20, 0, 5, 1)), ((2, 3, 2, 4), (8, 0, 4, 1))]


def mean_and_norm(x):
    y = x.reshape(-1)
    return F.batch_norm(y.unsqueeze(-1), None, None, training=True), y.mean(0)


def greatest(x):
    y = x.reshape(-1)
    return y.sum(0), (y * 2).amax(0), y.argmax(0)


def rows(x):
    y = x.reshape(x.shape[0], -1)
    return y.sum(1), y.softmax(1)


def picked(x):
    y = x.reshape(-1)
    return torch.where(torch.arange(y.numel()) % 2 == 0, y, 0).sum(0)


@pytest.mark.parametrize("program", [mean_and_norm, greatest, rows, picked])
@pytest.mark.parametrize("shape, strides", SHAPES)
def test_on_a_cpu(program, shape, strides):
    x = torch.randn(1000).as_strided(shape, strides)
    torch.testing.assert_close(lampwork.compile(program)(x), program(x))


@pytest.mark.skipif(bool(available()), reason=available())
@pytest.mark.parametrize("program", [mean_and_norm, greatest, rows, picked])
@pytest.mark.parametrize("shape, strides", SHAPES)
def test_in_kernels_for_a_gpu(program, shape, strides):
    assert_like_eager(program, torch.randn(1000).as_strided(shape, strides))
