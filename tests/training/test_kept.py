"""What stays between the forward and the backward pass of normalisations and pools, as on a GPU; gradients are eager's."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import lampwork
from lampwork.graph import prepare


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    """Joint graphs are taken apart as those of programs for a GPU."""
    passes = prepare._joint_passes
    monkeypatch.setattr(prepare, "_joint_passes", lambda settings, device: passes(settings, "cuda:0"))


def kept_by(module, x):
    """(type, shape) of all that is kept of a call of the compiled `module`, whose gradients are compared with eager's."""
    expected = copy.deepcopy(module)
    compiled = lampwork.compile(module, options={"cache": False})
    y = x.detach().clone().requires_grad_()
    x = x.detach().clone().requires_grad_()
    for _ in range(2):
        for function, argument in ((compiled, x), (expected, y)):
            function(argument).square().mean().backward()
    torch.testing.assert_close(x.grad, y.grad)
    for mine, theirs in zip(module.parameters(), expected.parameters()):
        torch.testing.assert_close(mine.grad, theirs.grad)
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
