"""Inputs that a program reads nothing of do not keep a CUDA graph from being replayed when they are others."""

from __future__ import annotations

import torch

import lampwork
from lampwork.runtime.launch.memory_effects import accessed_inputs


def test_gradients_that_a_step_looks_at_and_drops():
    """Whether there are any is guarded, so they are inputs; what they hold is read by nothing."""
    layer = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    @lampwork.compile(options={"cache": False})
    def step(x):
        for parameter in layer.parameters():
            if parameter.grad is not None:
                parameter.grad = None
        loss = layer(x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for _ in range(3):
        step(torch.ones(2, 4))
    artifact = step.__lampwork__.entries[0].artifact
    gradients = {index for index, source in enumerate(artifact.inputs) if getattr(source, "name", "") == "grad"}
    touched = accessed_inputs(artifact.program)
    assert len(gradients) == 2 and not gradients & touched
    assert touched == set(range(len(artifact.inputs))) - gradients
