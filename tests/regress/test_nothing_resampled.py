"""Dimensions that keep their size are not resampled: an infinity is no neighbour there."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

import lampwork

MODES = {3: "linear", 4: "bilinear", 5: "trilinear"}


@pytest.fixture
def several_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [(5,), (9,), (4, 5), (4, 7), (8, 5), (3, 4, 5), (3, 4, 7), (6, 8, 5)])
def test_infinities(size, align_corners):
    shape = (1, 2, *(3, 4, 5)[3 - len(size) :])
    x = torch.arange(float(math.prod(shape))).view(shape)
    x[(..., *[1] * (len(size) - 1), 2)] = math.inf
    program = lambda x: F.interpolate(x, size, mode=MODES[x.dim()], align_corners=align_corners)
    for each in (x, x.transpose(0, 1).contiguous().transpose(0, 1)):
        torch.testing.assert_close(lampwork.compile(program)(each), program(each), equal_nan=True)


@pytest.mark.skipif(torch.backends.cpu.get_cpu_capability() == "DEFAULT", reason="kernels without fused products")
@pytest.mark.parametrize("sizes", [((1, 2), (3, 4)), ((3, 2), (9, 6)), ((5, 3), (7, 11))])
def test_weights_that_are_almost_zero(sizes):
    """1.5 * (1 / 3) - 0.5 is 1.5e-8 as one product and sum, rounded once: an infinity has that weight, and is no NaN."""
    before, after = sizes
    x = torch.arange(float(6 * math.prod(before))).view(2, 3, *before)
    x[..., -1] = -math.inf
    program = lambda x: F.interpolate(x, after, mode="bilinear")
    torch.testing.assert_close(lampwork.compile(program)(x), program(x), equal_nan=True)
    for size in range(2, 20):
        line = torch.eye(5)[None]
        program = lambda x, size=size: F.interpolate(x, size, mode="linear")
        assert torch.equal(lampwork.compile(program, dynamic=False)(line), program(line))


@pytest.mark.parametrize(
    "shape, size",
    [
        ((2, 3, 4), 7),
        ((2, 3, 2, 2), (5, 4)),
        ((2, 3, 2, 2), (65, 64)),
        ((2, 3, 2, 2, 2), (5, 5, 5)),
        ((2, 5, 2, 2, 2), (4, 5, 6)),
    ],
)
@pytest.mark.parametrize("rows", [False, True])
@pytest.mark.usefixtures("several_threads")
def test_signs_of_zero(shape, size, rows):
    """By the kernel, means are one sum over all corners, or taken along one dimension after the other. (With one thread
    eager's kernel of large images of three channels is another one, for that sign alone.)"""
    values = torch.tensor([-0.0, -0.25, -0.75, -0.25, -1.25, -0.5, 0.75, -0.0, 0.0, 1.0, -1.0])
    program = lambda x: F.interpolate(x, size, mode=MODES[x.dim()])
    compiled = lampwork.compile(program, dynamic=False)
    for seed in range(8):
        x = values[torch.randint(0, len(values), shape, generator=torch.Generator().manual_seed(seed))]
        x = x.transpose(1, -1).contiguous().transpose(1, -1) if rows and x.dim() == 3 else x
        x = (
            x.contiguous(memory_format=getattr(torch, f"channels_last{'_3d' * (x.dim() - 4)}"))
            if rows and x.dim() > 3
            else x
        )
        ours, expected = compiled(x), program(x)
        torch.testing.assert_close(ours, expected)
        zeros = (ours == 0) & (expected == 0)
        assert torch.equal(ours[zeros].signbit(), expected[zeros].signbit())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("elements, size", [(3, 7), (5, 9), (6, 11), (10, 7)])
def test_places_between_elements_are_rounded_as_in_eager(dtype, elements, size):
    """A place that comes out as a whole number, or next to one, has one neighbour or two: NaN tells them."""
    for tail in ((), (1,), (1, 1)):
        x = torch.zeros(elements, elements, dtype=dtype).fill_diagonal_(torch.nan).view(1, elements, elements, *tail)
        program = lambda x: F.interpolate(x, (size, *x.shape[3:]), mode=MODES[x.dim()])
        compiled = lampwork.compile(program, dynamic=False)
        assert torch.equal(compiled(x).isnan(), program(x).isnan()), tail
