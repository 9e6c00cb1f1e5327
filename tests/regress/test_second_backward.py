"""A second backward pass raises where eager's autograd has saved a tensor. Where it has saved none, it gives the same
gradients again; a region raised there, too."""

from __future__ import annotations

import pytest
import torch

import lampwork


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


PROGRAMS = [
    lambda x: x.sum() + x.mean(), lambda x: (x[1:] + x[:-1]).sum(), lambda x: torch.cat([x, x]).flip(0).cumsum(0).sum(),
    lambda x: Straight.apply(x).sum(), lambda x: (x * 2).sum(), lambda x: x.relu().sum(), lambda x: x.sin().sum(),
    lambda x: torch.nn.functional.pad(x, (1, 1)).sum(), lambda x: x.expand(2, *x.shape).sum(),
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_raises_as_eager_does(program):
    def outcome(run):
        x = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
        result = run(x)
        result.backward()
        try:
            result.backward()
        except RuntimeError as error:
            return str(error)
        return x.grad.tolist()

    compiled = lampwork.compile(lambda x: program(x), options={"cache": False})
    assert outcome(compiled) == outcome(program)
