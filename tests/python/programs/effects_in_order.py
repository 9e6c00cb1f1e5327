"""Programs whose every part leaves a trace outside: should any of it run twice, or not at all, it shows."""

from __future__ import annotations

import random

import torch

from tests.python.harness import program

LOG = []
STATE = {"calls": 0}


def vector():
    return torch.arange(4.0)


class Meter:
    def __init__(self):
        self.total = 0.0
        self.seen = []

    def update(self, value):
        self.total = self.total + value
        self.seen.append(len(self.seen))


@torch.compiler.disable
def outside(text):
    """A break."""
    LOG.append(text)
    return len(LOG)


@program(vector, Meter, list)
def writes_everywhere(x, meter, results):
    x.mul_(2)
    meter.update(x.sum())
    results.append(x + 1)
    STATE["calls"] += 1
    print("call", STATE["calls"])
    return results[-1] * 2


@program(vector)
def draws_numbers(x):
    noise = torch.rand(4)
    x.add_(noise)
    return torch.nn.functional.dropout(x, 0.5) + torch.randn(4)


@program(vector, Meter)
def breaks_in_the_middle(x, meter):
    x.add_(1)
    meter.update(x.sum())
    count = outside("first")
    x.mul_(count + 1)
    noise = torch.rand(4)
    meter.update(noise.sum())
    LOG.append(outside("second"))
    return x + noise, random.random()


@program(vector, list)
def raises_after_writes(x, seen):
    x.add_(1)
    seen.append(x.shape)
    print("about to fail")
    raise ValueError(f"after {len(seen)} writes")


@program(vector, list)
def an_operator_fails_after_writes(x, seen):
    x.add_(1)
    seen.append(x * 2)
    torch.rand(2)
    return x @ torch.ones(3)


@program(vector, list)
def fails_behind_a_break(x, seen):
    x.add_(1)
    seen.append(outside("break"))
    x.mul_(2)
    seen.append(x.view(2, 2))
    return x.view(3)


@program(vector, dict)
def catches_what_fails(x, table):
    for size in (4, 3, 2):
        try:
            table[size] = (x + 1).view(-1, size)
        except RuntimeError as error:
            x.add_(1)
            table[size] = type(error).__name__
    return x


@program(
    calls=(
        lambda: (torch.ones(4), []),
        lambda: (torch.ones(6), []),
        lambda: (torch.ones(8), []),
        lambda: (torch.ones(5, 2), []),
    )
)
def is_compiled_for_several_sizes(x, seen):
    x.mul_(3)
    seen.append(x.sum())
    STATE["calls"] += 1
    return x.reshape(-1)[::2] + STATE["calls"] % 2


def weights():
    return torch.ones(4, requires_grad=True)


@program(weights, vector, grad=True)
def takes_gradients(w, x):
    loss = (w * x).square().sum()
    loss.backward()
    with torch.no_grad():
        w.sub_(w.grad, alpha=0.1)
    x.add_(1)
    return loss.detach()


@program(weights, vector, list, grad=True)
def gives_a_loss(w, x, losses):
    x.add_(1)
    losses.append((w * x).tanh().sum())
    return losses[-1] * 2
