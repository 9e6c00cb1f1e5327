"""What stays between the forward and the backward pass of normalisations and pools, as on a GPU; gradients are eager's."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import lampwork
from lampwork.graph import prepare, recompute


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    """Joint graphs are taken apart, and what is kept is chosen, as in programs for a GPU."""
    passes, costs = prepare._joint_passes, recompute.Costs
    monkeypatch.setattr(recompute, "Costs", lambda joined, device, exact=False: costs(joined, "cuda:0", exact))
    monkeypatch.setattr(prepare, "_joint_passes", lambda settings, device, *more: passes(settings, "cuda:0", *more))


def kept_by(module, x, **tolerance):
    """(type, shape) of all that is kept of a call of the compiled `module`, whose gradients are compared with eager's."""
    expected = copy.deepcopy(module)
    compiled = lampwork.compile(module, options={"cache": False})
    y = x.detach().clone().requires_grad_()
    x = x.detach().clone().requires_grad_()
    for _ in range(2):
        for function, argument in ((compiled, x), (expected, y)):
            function(argument).square().mean().backward()
    torch.testing.assert_close(x.grad, y.grad, **tolerance)
    for mine, theirs in zip(module.parameters(), expected.parameters()):
        torch.testing.assert_close(mine.grad, theirs.grad, **tolerance)
    (entry,) = compiled.__lampwork__.entries
    program, link = entry.artifact.program, entry.artifact.backward
    views = [program.results[index].view for index in link.saved_results]
    return sorted((view.dtype, tuple(view.shape)) for view in views)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 4, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)

    def forward(self, x):
        return self.second(nn.functional.silu(self.norm(self.first(x))))


def test_of_a_group_norm_two_numbers_a_group_are_kept():
    kept = kept_by(Block(), torch.randn(2, 8, 6, 5))
    assert kept == [("float32", (2, 2))] * 2 + [("float32", (2, 8, 6, 5))] * 2  # operands of the norm and the product


def test_sums_of_half_precision_are_kept_as_such():
    class Mixed(Block):
        def __init__(self):
            super().__init__()
            self.more = nn.ModuleList(nn.Conv2d(8, 8, 3, padding=1) for _ in range(3))

        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16):
                wide = (self.more[0](x) + self.more[1](x) + self.more[2](x)).float()
                return self.second(nn.functional.silu(self.norm(wide))).float() + wide.mean()

    kept = kept_by(Mixed(), torch.randn(2, 8, 6, 5), rtol=2e-2, atol=2e-3)
    assert ("float32", (2, 8, 6, 5)) not in kept, kept


class Pooled(nn.Module):
    def __init__(self, pool):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.pool, self.second = nn.Conv2d(3, 4, 3), pool, nn.Conv2d(4, 4, 1)

    def forward(self, x):
        return self.second(self.pool(self.first(x).tanh()))


@pytest.mark.parametrize("size, kept_as", [((2, 3, 14, 11), "int8"), ((1, 3, 6, 160), "int16")])
@pytest.mark.parametrize("pool", [
    nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(2), nn.MaxPool2d((2, 3), (1, 2), (1, 0), ceil_mode=True), nn.MaxPool2d(2, 1, 1, 2),
])  # fmt: skip
def test_where_maxima_are_is_kept_in_few_bytes(pool, size, kept_as):
    kept = kept_by(Pooled(pool), torch.randn(size))
    wide = pool(torch.empty(1, 4, size[2] - 2, size[3] - 2)).shape
    (place,) = [shape for dtype, shape in kept if dtype == kept_as]
    assert place[2:] == wide[2:] and not any(dtype == "int64" for dtype, _ in kept)


@pytest.mark.parametrize("pool", [nn.AvgPool2d(3, 2, 1), nn.AdaptiveAvgPool2d((3, 2)), nn.MaxPool2d(2)])
def test_an_image_is_not_kept_for_its_shape(pool):
    kept = kept_by(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Sigmoid(), pool, nn.Conv2d(4, 4, 1)), torch.randn(2, 3, 14, 12))
    assert [shape for _, shape in kept].count((2, 4, 12, 10)) == 1  # of the sigmoid, for its derivative


@pytest.mark.parametrize("frozen", ["weight", "image"])
def test_of_a_convolution_only_what_the_wanted_gradients_need_is_kept(frozen):
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.first, self.second = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)
            (self.second if frozen == "weight" else self.first).requires_grad_(False)

        def forward(self, x):
            x = self.first(x)
            return self.second((x.detach() if frozen == "image" else x).exp().neg())

    module = Frozen()
    kept = [shape for _, shape in kept_by(module, torch.randn(2, 3, 14, 12))]
    assert kept.count((2, 4, 12, 10)) == 1  # the exponential, or its negation
