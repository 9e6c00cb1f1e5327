"""Gradients through convolutions with their joint graphs taken apart as those of programs for a GPU; they are eager's."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import lampwork
from lampwork.graph import prepare

CONVOLUTIONS = {
    "1d": (lambda: nn.Conv1d(4, 6, 3, padding=1), (2, 4, 9)),
    "2d": (lambda: nn.Conv2d(4, 6, 3, stride=2), (2, 4, 9, 7)),
    "3d": (lambda: nn.Conv3d(4, 6, 2), (2, 4, 4, 3, 5)),
    "groups": (lambda: nn.Conv2d(4, 6, 3, groups=2, dilation=2), (2, 4, 9, 7)),
    "depthwise": (lambda: nn.Conv2d(4, 8, 3, groups=4), (2, 4, 5, 5)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, groups=2), (2, 4, 5, 4)),
    "one image": (lambda: nn.Conv2d(4, 6, 3), (4, 5, 5)),
    "pixels": (lambda: nn.Conv2d(4, 6, 1), (3, 4, 5, 5)),
    "no images": (lambda: nn.Conv2d(4, 6, 3), (0, 4, 5, 5)),
}


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    passes = prepare._joint_passes
    monkeypatch.setattr(prepare, "_joint_passes", lambda settings, device, *more: passes(settings, "cuda:0", *more))


def masks_of(compiled) -> list[tuple[bool, ...]]:
    """What is asked of each derivative of a convolution."""
    (entry,) = compiled.__lampwork__.entries
    found = entry.artifact.backward.artifact.program.steps
    return [step.args[10] for step in found if getattr(step, "op", "").startswith("aten::convolution_backward")]


def check(module: nn.Module, *inputs: torch.Tensor, dynamic: bool = False, **tolerance: float):
    """Gradients of parameters and inputs are eager's; the compiled module."""
    expected = copy.deepcopy(module)
    compiled = lampwork.compile(module, dynamic=dynamic, options={"cache": False})
    for x in inputs:
        found = []
        for function, parameters in ((compiled, module.parameters()), (expected, expected.parameters())):
            y = x.detach().clone(memory_format=torch.preserve_format).requires_grad_(x.requires_grad)
            wanted = [each for each in (y, *parameters) if each.requires_grad]
            found.append(torch.autograd.grad(function(y).float().sin().sum(), wanted))
        for mine, theirs in zip(*found, strict=True):
            assert (mine.dtype, mine.stride()) == (theirs.dtype, theirs.stride())
            torch.testing.assert_close(mine, theirs, **tolerance)
    return compiled


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_gradients_of_biases(name):
    make, shape = CONVOLUTIONS[name]
    torch.manual_seed(0)
    compiled = check(make(), torch.randn(shape, requires_grad=True), rtol=1e-4, atol=1e-4)
    assert all(not of_bias for _, _, of_bias in masks_of(compiled))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_half_types_are_rounded_once(dtype, layout):
    """The sum of many elements, which a running sum of a half type would lose."""
    torch.manual_seed(0)
    module = nn.Conv2d(2, 4, 1).to(dtype)
    x = torch.randn(4, 2, 48, 48, dtype=dtype).to(memory_format=layout)
    check(module, x, rtol=2e-2, atol=2e-2)


def test_where_only_the_bias_is_trained_no_derivative_is_computed():
    torch.manual_seed(0)
    module = nn.Conv2d(4, 6, 3)
    module.weight.requires_grad_(False)
    compiled = check(module, torch.randn(2, 4, 6, 6))
    assert masks_of(compiled) == []


def test_sizes_that_vary():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(4, 6, 3, padding=1), nn.SiLU(), nn.Conv2d(6, 3, 1))
    inputs = [torch.randn(count, 4, side, side + 1, requires_grad=True) for count, side in ((2, 5), (3, 6), (4, 9))]
    compiled = check(module, *inputs, dynamic=True, rtol=1e-4, atol=1e-4)
    assert masks_of(compiled) == [(True, True, False)] * 2


def test_gradients_of_gradients():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Conv2d(3, 2, 1))
    expected, x = copy.deepcopy(module), torch.randn(2, 2, 5, 5, requires_grad=True)
    found = []
    for function, parameters in ((lampwork.compile(module), module.parameters()), (expected, expected.parameters())):
        leaves = list(parameters)
        first = torch.autograd.grad(function(x).square().sum(), [x, *leaves], create_graph=True)
        found.append((first, torch.autograd.grad(sum(each.square().sum() for each in first), [x, *leaves])))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-4)


def test_a_whole_step():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(2, 4, 3), nn.GELU(), nn.Conv2d(4, 2, 3))
    expected = copy.deepcopy(module)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (module, expected)]

    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = lampwork.compile(step, options={"cache": False})
    for _ in range(3):
        x = torch.randn(2, 2, 8, 8)
        torch.testing.assert_close(compiled(module, optimizers[0], x), step(expected, optimizers[1], x))
    torch.testing.assert_close(list(module.parameters()), list(expected.parameters()))
