"""Numbers that became symbolic are ints and floats to the program, whatever it asks."""

from __future__ import annotations

import torch
from torch import nn

import lampwork


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x + 1, type(self.calls), isinstance(self.calls, int), self.calls.__class__, self.calls.bit_length()


def test_counter_of_a_module():
    module = Counting()
    compiled = lampwork.compile(module, options={"cache": False})
    for call in range(1, 5):
        _, *answers = compiled(torch.ones(2))
        assert module.calls == call
        assert answers == [int, True, int, call.bit_length()]
    assert not lampwork.stats(compiled)["fallbacks"]


def test_derivative_of_a_spread_over_a_size_that_varies():
    """The derivative divides by the size less one, as native code does with symbolic numbers: capture failed."""

    def program(x):
        return x.std(), x.var(0, correction=0), torch.var_mean(x)[0]

    compiled = lampwork.compile(program, dynamic=True, options={"cache": False})
    for count in (3, 4, 2):
        x, y = (torch.arange(float(count)).sin().requires_grad_() for _ in range(2))
        torch.autograd.backward(compiled(x))
        torch.autograd.backward(program(y))
        torch.testing.assert_close(x.grad, y.grad)
    assert not lampwork.stats(compiled)["fallbacks"]
