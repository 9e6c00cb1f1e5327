"""What was saved for the backward pass got the layout of a gradient, where contents decide a size of a result."""

from __future__ import annotations

import torch

import lampwork


def program(x):
    return torch.nanmean(x, dim=(1, 3)), x[x > 0]


def test_saved_counts_beside_picked_elements():
    grads = []
    for function in (program, lampwork.compile(program, options={"cache": False})):
        memory = torch.tensor([-0.5, -0.25, 0.0, -0.5, 2.0, 7.0], requires_grad=True)
        for result in (*function(memory[:4].as_strided((1, 2, 1, 2), (4, 1, 4, 2), 0)),):
            result.sum().backward(retain_graph=True)
        grads.append(memory.grad)
    assert torch.equal(*grads)
