"""The casts of weights that eager code between two compiled parts keeps, under autocast, outlived the contexts: the next
step computed with old weights. And captures that leave a context which was entered before left one too many."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import lampwork
from lampwork import _torch


class Model(nn.Module):
    def __init__(self, contexts):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.contexts = contexts

    def forward(self, x):
        for _ in range(self.contexts):
            with torch.autocast("cpu", torch.bfloat16):
                x = between(self.second, self.first(x))
                x = self.first(x).tanh()
        return x


@torch.compiler.disable
def between(layer, x):
    return layer(x) + _torch.autocast_nesting()


def train(model, run, outside):
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), 0.3)
    losses = []
    for _ in range(5):
        with torch.autocast("cpu", torch.bfloat16, enabled=outside):
            loss = run(torch.randn(4, 8)).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        assert _torch.autocast_nesting() == 0
    return losses


@pytest.mark.parametrize("contexts", [1, 2])
@pytest.mark.parametrize("outside", [False, True])
def test_weights_change_between_steps(contexts, outside):
    torch.manual_seed(0)
    mine = Model(contexts)
    other = copy.deepcopy(mine)
    compiled = lampwork.compile(mine, options={"cache": False})
    assert train(mine, compiled, outside) == pytest.approx(train(other, other, outside), rel=1e-2)
    assert sum(each.count for each in lampwork.stats(compiled)["breaks"]) == 5 * contexts


def test_a_cache_that_the_program_empties():
    layer = nn.Linear(4, 4)
    x = torch.randn(2, 4)

    def program(x):
        torch.clear_autocast_cache()
        return x + 1

    compiled = lampwork.compile(program, options={"cache": False})
    for run in (compiled, program):
        layer.reset_parameters()
        with torch.autocast("cpu", torch.bfloat16):
            layer(x)
            with torch.no_grad():
                layer.weight.zero_()
                layer.bias.zero_()
            run(x)
            assert not layer(x).any()
            layer(x)
            with torch.no_grad():
                layer.weight.fill_(1)
            run(x)
            assert layer(x).any()
