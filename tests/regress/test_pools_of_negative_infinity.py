"""A padded max pool said of a window with nothing above -inf that its maximum lies outside of the image, at -1."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

import lampwork


@pytest.mark.parametrize("pool, count", [(F.max_pool1d, 1), (F.max_pool2d, 2), (F.max_pool3d, 3)])
@pytest.mark.parametrize("stride, dilation, ceil_mode", itertools.product((1, 2), (1, 2), (False, True)))
def test_places(pool, count, stride, dilation, ceil_mode):
    program = lambda x: pool(x, 3, stride, 1, dilation, ceil_mode, return_indices=True)
    compiled = lampwork.compile(program, options={"cache": False})
    for fill in (-math.inf, math.nan, 0.0):
        x = torch.full((1, 2, *[5] * count), fill)
        drawn = torch.rand(x.shape, generator=torch.Generator().manual_seed(1))
        x = torch.where(drawn < 0.1, drawn, x)
        for found, expected in zip(compiled(x), program(x)):
            torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


def test_gradients():
    program = lambda x: F.max_pool1d(x.reciprocal(), 2, 2, 1)
    x, y = (torch.tensor([-0.25, -0.0]).view(2, 1, 1).requires_grad_() for _ in range(2))
    program(x).sum().backward()
    lampwork.compile(program, options={"cache": False})(y).sum().backward()
    assert torch.equal(x.grad, y.grad)
