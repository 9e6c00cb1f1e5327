"""Results of a module that is trained are differentiated together, alone, and one after the other."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn as nn

from lampwork import _torch
from tests.gpu.support import compiled_of

CALLS = 10


@pytest.fixture(autouse=True)
def exact():
    with _torch.exact_products():
        yield


class Heads(nn.Module):
    """Two results with a common trunk, and one of parameters of its own."""

    def __init__(self):
        super().__init__()
        self.trunk, self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 8), nn.Linear(64, 4)
        self.other = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 2))

    def forward(self, x):
        hidden = torch.tanh(self.trunk(x))
        return self.first(hidden).exp(), self.second(hidden).sigmoid(), self.other(x).square()


ORDERS = {
    "together": [(0, 1, 2)], "alone": [(1,)], "with its own": [(2,)], "one after the other": [(0, 1), (2,)],
    "in reverse": [(2,), (1, 0)],
}  # fmt: skip


@pytest.mark.parametrize("hooks", [False, True])
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("order", ORDERS)
def test_gradients(device, order, mode, hooks):
    torch.manual_seed(0)
    ours = Heads().to(device)
    theirs = copy.deepcopy(ours)
    function = compiled_of(ours, mode)
    if hooks:
        for model in (ours, theirs):
            for each in model.parameters():
                each.register_hook(lambda gradient: gradient.clamp(-0.5, 0.5))
    for call in range(CALLS):
        x = torch.randn(16, 64, generator=torch.Generator().manual_seed(call)).to(device)
        for model, forward in ((ours, function), (theirs, theirs)):
            results = forward(x)
            for members in ORDERS[order]:
                torch.autograd.backward([results[each].mean() for each in members])
        for (name, one), other in zip(ours.named_parameters(), theirs.named_parameters()):
            expected = other[1].grad
            assert (one.grad is None) == (expected is None), (call, name)
            if expected is not None:
                torch.testing.assert_close(one.grad, expected, rtol=2e-4, atol=2e-5)
        for model in (ours, theirs):
            model.zero_grad()
