"""Dimensions that keep their size are not resampled: an infinity is no neighbour there."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

import lampwork

MODES = {3: "linear", 4: "bilinear", 5: "trilinear"}


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [(5,), (9,), (4, 5), (4, 7), (8, 5), (3, 4, 5), (3, 4, 7), (6, 8, 5)])
def test_infinities(size, align_corners):
    shape = (1, 2, *(3, 4, 5)[3 - len(size) :])
    x = torch.arange(float(math.prod(shape))).view(shape)
    x[(..., *[1] * (len(size) - 1), 2)] = math.inf
    program = lambda x: F.interpolate(x, size, mode=MODES[x.dim()], align_corners=align_corners)
    for each in (x, x.transpose(0, 1).contiguous().transpose(0, 1)):
        torch.testing.assert_close(lampwork.compile(program)(each), program(each), equal_nan=True)
