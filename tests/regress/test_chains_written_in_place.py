"""Gradients of what comes before a chain of equal blocks were lost: its additions write in place, each launch of one kernel
over the result of the one before, and the first of them over what a convolution's backward pass has made in another
layout. That it had become one with the first sum was forgotten when this became one with the second."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import lampwork
from lampwork import pipeline


class Net(nn.Module):
    def __init__(self, blocks, channels, groups):
        super().__init__()
        self.first = nn.Linear(channels, channels)
        self.norms = nn.ModuleList(nn.LayerNorm(channels) for _ in range(blocks))
        self.linears = nn.ModuleList(nn.Linear(channels, channels) for _ in range(blocks))
        self.last = nn.Conv2d(channels, channels, 3, 1, 1, groups=groups)

    def forward(self, x):
        size = round(x.shape[1] ** 0.5)
        x = self.first(x)
        for norm, linear in zip(self.norms, self.linears):
            x = x + linear(norm(x))
        return self.last(x.transpose(1, 2).view(x.shape[0], -1, size, size))


@pytest.mark.parametrize("blocks, channels, size, groups", [(6, 256, 14, 256), (3, 256, 14, 1), (4, 64, 32, 64)])
def test_gradients(blocks, channels, size, groups):
    torch.manual_seed(0)
    net = Net(blocks, channels, groups)
    compiled = lampwork.compile(net, options={"cache": False})
    x, found = torch.randn(2, size * size, channels), []
    for each in (net, compiled):
        net.zero_grad()
        each(x).pow(2).mean().backward()
        found.append([parameter.grad for parameter in net.parameters()])
    for expected, ours in zip(*found):
        assert (ours - expected).norm() <= 1e-4 * expected.norm()


def test_programs_that_read_what_nothing_wrote_are_refused(monkeypatch):
    """In every compile, not only under LAMPWORK_VERIFY=1: the numbers would be wrong, and nobody would know."""
    scheduled = pipeline.schedule

    def reversed_steps(*arguments):
        program = scheduled(*arguments)
        return replace(program, steps=program.steps[::-1])

    monkeypatch.setattr(pipeline, "environment", replace(pipeline.environment, verify=False))
    monkeypatch.setattr(pipeline, "schedule", reversed_steps)
    compiled = lampwork.compile(lambda x: (x @ x).relu() @ x, options={"cache": False})
    with pytest.raises(lampwork.CompileError, match="is read before it is written"):
        compiled(torch.ones(4, 4))
