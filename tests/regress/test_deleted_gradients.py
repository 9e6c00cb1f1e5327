"""`del parameter.grad` was a break, which ran whole steps eagerly."""

from __future__ import annotations

import copy

import torch

import lampwork


def test_a_step_that_deletes_gradients():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    other = copy.deepcopy(model)

    def make(model):
        def step(x):
            loss = model(x).square().mean()
            loss.backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.sub_(parameter.grad, alpha=0.1)
                    del parameter.grad
                    del parameter.grad  # nothing is there; torch does not mind
            return loss.detach(), model.weight.grad

        return step

    step, compiled = make(model), lampwork.compile(make(other), fullgraph=True, options={"cache": False})
    for number in range(4):
        x = torch.randn(5, 4)
        if number == 2:
            model.weight.grad = torch.ones(3, 4)
            other.weight.grad = torch.ones(3, 4)
        torch.testing.assert_close(compiled(x), step(x))
        torch.testing.assert_close(list(other.parameters()), list(model.parameters()))
        assert all(each.grad is None for each in other.parameters())
