"""Strides of convolutions and of their gradients are those of the path that ATen takes on the machine at hand: in three
dimensions ATen's own algorithm knows no channels last, oneDNN does, and a weight of one pixel keeps its own strides."""

from __future__ import annotations

import pytest
import torch

import lampwork

SHAPES = {
    "pixels": ((2, 8, 6, 6), (8, 8, 1, 1), 1),
    "depthwise": ((2, 8, 6, 6), (8, 1, 3, 3), 8),
    "one channel": ((2, 1, 6, 6), (4, 1, 3, 3), 1),
    "usual": ((2, 3, 9, 9), (4, 3, 3, 3), 1),
    "3d": ((2, 3, 4, 5, 5), (4, 3, 3, 3, 3), 1),
    "3d pixels": ((2, 3, 4, 5, 5), (4, 3, 1, 1, 1), 1),
}


def program(x, weight, groups):
    convolve = torch.nn.functional.conv2d if x.dim() == 4 else torch.nn.functional.conv3d
    leaves = [x.detach().requires_grad_(), weight.detach().requires_grad_()]
    with torch.enable_grad():
        result = convolve(*leaves, groups=groups)
        gradients = torch.autograd.grad(result.sin().sum(), leaves)
    return result.detach(), *gradients


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_strides_are_the_path_s(name, dtype):
    shape, kernel, groups = SHAPES[name]
    order = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    torch.manual_seed(0)
    x, weight = torch.randn(shape).to(dtype), torch.randn(kernel).to(dtype)
    compiled = lampwork.compile(program, options={"cache": False, "recompile_limit": 8})
    for image, filters in ((x.to(memory_format=order), weight), (x, weight.to(memory_format=order))):
        expected, found = program(image, filters, groups), compiled(image, filters, groups)
        assert [each.stride() for each in found] == [each.stride() for each in expected]
        torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)
    assert not lampwork.stats(compiled)["fallbacks"]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("transposed", [False, True])
def test_dilated_and_transposed_in_three_dimensions(transposed, dtype, dynamic):
    """ATen's own algorithms write contiguous gradients: strides of dimensions of one element say so, too."""
    F = torch.nn.functional
    convolve = F.conv_transpose3d if transposed else F.conv3d
    program = lambda x, weight: convolve(x, weight, dilation=2)
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    shapes = [
        ((1, 2, 1, 1, 1), (2, 1, 2, 2, 2)),
        ((1, 2, 3, 3, 3), (54, 1, 18, 6, 2)),
        ((1, 2, 1, 1, 3), (6, 1, 2, 2, 2)),
    ]
    for shape, strides in shapes:
        found = []
        for function in (program, compiled):
            x = torch.ones(54, dtype=dtype).as_strided(shape, strides).requires_grad_()
            weight = torch.ones(4, dtype=dtype).as_strided((2, 2, 1, 1, 1), (2, 1, 2, 2, 2)).requires_grad_()
            result = function(x, weight)
            result.backward(torch.ones(result.shape, dtype=dtype))
            found.append((result.stride(), x.grad.stride(), weight.grad.stride()))
        assert found[0] == found[1]
