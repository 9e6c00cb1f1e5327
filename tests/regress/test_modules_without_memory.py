"""Modules on "meta" stand for the code of several others, whose parameters are handed over in each call."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.training.support import Steps, check_steps


def test_an_ensemble_is_trained_through_one_module_on_meta():
    def make() -> Steps:
        models = [nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)) for _ in range(3)]
        weights, buffers = torch.func.stack_module_state(models)
        base = copy.deepcopy(models[0]).to("meta")
        optimizer = torch.optim.SGD(weights.values(), lr=0.1)

        def one(weights, buffers, x):
            return torch.func.functional_call(base, (weights, buffers), (x,))

        def step(x, y):
            optimizer.zero_grad()
            found = torch.vmap(one, in_dims=(0, 0, None))(weights, buffers, x)
            loss = F.mse_loss(found, y.expand(3, -1, -1))
            loss.backward()
            optimizer.step()
            return loss.detach()

        return Steps(step, lambda: [(each, each.grad) for each in weights.values()], arguments)

    check_steps(make, entries=1)


def arguments(number: int) -> tuple:
    generator = torch.Generator().manual_seed(number)
    return torch.randn(5, 4, generator=generator), torch.randn(5, 2, generator=generator)
