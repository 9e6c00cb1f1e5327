"""Second derivatives of a region beside a number that varies: the tensor that it is for the graph was nobody's, and
gone when eager computed the gradients."""

from __future__ import annotations

import torch

import lampwork


class Critic(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 8), torch.nn.Linear(8, 1)
        self.temperature = 1.0

    def forward(self, x, scale):
        return self.second(torch.tanh(self.first(x) * self.temperature)) * scale


def penalties(critic):
    found = []
    for step, rows in enumerate((4, 4, 6, 5)):
        torch.manual_seed(step)
        getattr(critic, "_orig_mod", critic).temperature = 1.0 / (1 + step)
        x = torch.randn(rows, 3, requires_grad=True)
        (slope,) = torch.autograd.grad(critic(x, 0.5 + step).sum(), x, create_graph=True)
        critic.zero_grad()
        (slope.norm(dim=1) - 1).pow(2).mean().backward()
        found += [
            slope.detach(),
            x.grad.clone(),
            *(each.grad.clone() for each in critic.parameters() if each.grad is not None),
        ]
    return found


def test_gradient_penalty_with_a_scheduled_scale():
    torch.manual_seed(0)
    critic = Critic()
    expected = penalties(critic)
    torch.testing.assert_close(penalties(lampwork.compile(critic)), expected)


def test_an_array():
    def program(x, array):
        return (x.exp() * torch.from_numpy(array)).sum()

    compiled = lampwork.compile(program)
    for rows in (3, 4, 5):
        x, array = torch.randn(rows, requires_grad=True), torch.randn(rows).numpy()
        (slope,) = torch.autograd.grad(compiled(x, array), x, create_graph=True)
        slope.sum().backward()
        torch.testing.assert_close(x.grad, x.detach().exp() * torch.from_numpy(array))
