"""An input that autograd saves, and that is written through another input which is a view of it: the error was lost, and
the gradient that of the new values."""

from __future__ import annotations

import pytest
import torch

import lampwork

CHANGED = "modified by an inplace operation"


def row(x, w, bank):
    y = (x * w).sum()
    bank.add_(1)
    return y


def detached(x, w, bank):
    y = (x * w).sum()
    bank.detach().mul_(2)
    return y


def without_gradients(x, w, bank):
    y = (x * w).exp().sum()
    with torch.no_grad():
        bank.copy_(x.sum(0))
    return y


def before(x, w, bank):
    bank.add_(1)
    return (x * w).sum()


def unread(x, w, bank):
    y = (x + w).sum()
    bank.add_(1)
    return y


PROGRAMS = [row, detached, without_gradients, before, unread]


def answer(function, part):
    x, w = torch.ones(2, 3), torch.ones(3, requires_grad=True)
    try:
        result = function(x, w, part(x))
        result.backward()
        return result.item(), w.grad.tolist(), x.tolist()
    except RuntimeError as error:
        assert CHANGED in str(error)
        return CHANGED, x.tolist()


@pytest.mark.parametrize(
    "part", [lambda x: x[0], lambda x: x.view(6)[2:5], lambda x: x.data[1]], ids=["row", "view", "data"]
)
@pytest.mark.parametrize("program", PROGRAMS)
def test_arguments(program, part):
    compiled = lampwork.compile(program)
    for _ in range(3):
        assert answer(compiled, part) == answer(program, part)


def test_a_buffer_and_a_row_of_it():
    class Bank(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("queue", torch.ones(2, 3))
            self.row = self.queue[1]
            self.weight = torch.nn.Parameter(torch.ones(3))

        def forward(self):
            y = (self.queue * self.weight).sum()
            self.row.mul_(0.5)
            return y

    for wrap in (lambda module: module, lampwork.compile):
        with pytest.raises(RuntimeError, match=CHANGED):
            wrap(Bank())().backward()
