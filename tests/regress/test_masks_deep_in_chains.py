"""Masks that are computed from long chains: to tell equal ones, each value was looked at once for each way to it, which
took twice as long for each operator that reads one value twice."""

from __future__ import annotations

import torch

import lampwork


def chained(x, turns):
    for _ in range(turns):
        x = x + x.sin() * 0.1
    return x[x > 0].sum() + x[x > 0].mean(), x[x < 0]


def forces(x, turns):
    for _ in range(turns):
        leaf = x.detach().requires_grad_()
        distance = (leaf[:, None] - leaf[None]).pow(2).sum(-1)
        energy = (1 / distance[(distance < 6) & (distance > 0)]).sum()
        x = x - 0.001 * torch.autograd.grad(energy, leaf)[0]
    return x


def test_chains():
    compiled = lampwork.compile(chained)
    for turns in (1, 40, 400):
        x = torch.linspace(-1, 1, 7)
        torch.testing.assert_close(compiled(x, turns), chained(x, turns))


def test_steps_of_a_simulation():
    compiled = lampwork.compile(forces)
    for turns in (2, 6):
        x = torch.rand(8, 3, generator=torch.Generator().manual_seed(turns)) * 4
        torch.testing.assert_close(compiled(x, turns), forces(x, turns))
