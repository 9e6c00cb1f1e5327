"""Weights that a program writes count their writes, on each call: autograd's checks of versions see it."""

from __future__ import annotations

import pytest
import torch

import lampwork


class Running:
    """Two tensors of its own, and one that the call is given, are written."""

    def __init__(self, make) -> None:
        self.mean, self.count = make(), make()

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.mul_(0.5).add_(x)
        self.count.add_(1)
        x.add_(1)
        return self.mean * 2


def test_each_call_counts():
    running = Running(lambda: torch.zeros(4))
    compiled = lampwork.compile(running, options={"cache": False})
    x = torch.ones(4)
    for _ in range(3):
        before = running.mean._version, running.count._version, x._version
        compiled(x)
        after = running.mean._version, running.count._version, x._version
        assert all(new > old for new, old in zip(after, before))
    replaced = running.mean = torch.zeros(4)  # another tensor from now on
    for _ in range(3):
        before = replaced._version
        compiled(x)
        assert replaced._version > before


def test_a_backward_pass_notices():
    running = Running(lambda: torch.zeros(4))
    compiled = lampwork.compile(running, options={"cache": False})
    weight = torch.ones(4, requires_grad=True)
    compiled(torch.ones(4))
    loss = (weight * running.mean).sum()
    compiled(torch.ones(4))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_inference_tensors_keep_none():
    with torch.inference_mode():
        running = Running(lambda: torch.zeros(4))
        x = torch.ones(4)
        compiled = lampwork.compile(running, options={"cache": False})
        for _ in range(3):
            compiled(x)
    assert running.count.tolist() == [3.0] * 4
