"""Under numerics="eager" a backward program takes tangents as they are laid out: copied into the layout of its output,
they were added up in another order by what is called."""

from __future__ import annotations

import pytest
import torch

import lampwork
from tests.ops.bits import apart

LOSSES = {
    "mean of squares": lambda y: y.float().square().mean(),
    "sum": lambda y: y.sum(),
    "transposed": lambda y: (y.transpose(1, 2).contiguous() * torch.linspace(-1, 1, 5)).sum(),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_are_eagers(loss, dynamic):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.BatchNorm2d(6), torch.nn.ReLU(), torch.nn.BatchNorm2d(6))
    compiled = lampwork.compile(model, dynamic=dynamic, options={"numerics": "eager", "cache": False})
    found = []
    for run in (compiled, model):
        results = []
        for seed in range(3):
            torch.manual_seed(seed)
            x = torch.randn(8, 6, 7, 5).contiguous(memory_format=torch.channels_last).requires_grad_()
            model.zero_grad()
            y = run(x)
            LOSSES[loss](y).backward()
            results += [y.detach(), x.grad, *[each.grad.clone() for each in model.parameters()]]
        found.append(results)
    for mine, eagers in zip(*found, strict=True):
        assert not apart(mine, eagers) and mine.stride() == eagers.stride()
    stats = lampwork.stats(compiled)
    assert not stats["fallbacks"] and stats["entries"] == 1


def test_a_reshape_of_what_cannot_be_viewed():
    def program(x, w):
        return torch.relu(x.reshape(12, 5) @ w).reshape(3, 4, 7)

    x, w = torch.randn(3, 4, 5, requires_grad=True), torch.randn(5, 7, requires_grad=True)
    compiled = lampwork.compile(program, options={"numerics": "eager", "cache": False})
    for tangent in (
        torch.randn(3, 4, 7),
        torch.randn(7, 4, 3).permute(2, 1, 0),
        torch.ones(()).expand(3, 4, 7),
        torch.randn(3, 1, 7).expand(3, 4, 7),
    ):
        mine = torch.autograd.grad(compiled(x, w), (x, w), tangent)
        eagers = torch.autograd.grad(program(x, w), (x, w), tangent)
        for one, other in zip(mine, eagers, strict=True):
            assert not apart(one, other) and one.stride() == other.stride()
    assert not lampwork.stats(compiled)["fallbacks"]


SMALLEST = {
    # A kernel whose vectors and tails differ, and which is composite elsewhere.
    "silu": (torch.nn.SiLU(), lambda y: y.mean((2, 3)).square().sum()),
    # Derivatives make the gradient contiguous before they call the kernel.
    "group norm": (
        torch.nn.GroupNorm(2, 6),
        lambda y: (y.transpose(1, 3).contiguous() * torch.linspace(-1, 1, 6)).sum(),
    ),
}


@pytest.mark.parametrize("name", SMALLEST)
def test_smallest(name):
    model, loss = SMALLEST[name]
    torch.manual_seed(0)
    x = torch.randn(4, 6, 5, 5)
    if name == "silu":
        x = x.transpose(2, 3).contiguous().transpose(2, 3)
    compiled = lampwork.compile(model, options={"numerics": "eager", "cache": False})
    found = []
    for run in (compiled, model):
        given = x.detach().requires_grad_()
        model.zero_grad()
        loss(run(given)).backward()
        found.append([given.grad, *[each.grad.clone() for each in model.parameters()]])
    assert not any(map(apart, *found))


def test_saved_view_with_gaps():
    """It was saved as a dense copy, of which vectors of another length are taken."""

    def program(x):
        return torch.nn.functional.gelu(torch.nn.functional.interpolate(x, scale_factor=2)[..., ::2, ::2])

    torch.manual_seed(0)
    x = torch.randn(4, 6, 5, 5)
    compiled = lampwork.compile(program, options={"numerics": "eager", "cache": False})
    found = []
    for run in (compiled, program):
        given = x.detach().requires_grad_()
        run(given).square().mean().backward()
        found.append(given.grad)
    assert not apart(*found)
