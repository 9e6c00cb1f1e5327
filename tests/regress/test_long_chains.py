"""Chains of operations longer than Python's passes over expressions may recurse: several kernels, eager's values."""

from __future__ import annotations

import pytest
import torch

import lampwork


@pytest.mark.parametrize("length", [40, 150, 700])
def test_a_chain_is_compiled_whatever_its_length(length):
    def program(x):
        total = x.new_zeros(())
        for step in range(length):
            x = torch.sin(x) * 1.01 + step
            total = total + x.sum()
        return x, total

    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    compiled = lampwork.compile(program, options={"cache": False})
    for found, expected in zip(compiled(x), program(x)):
        torch.testing.assert_close(found, expected)
    assert not lampwork.stats(compiled)["fallbacks"]


def test_gradients_of_a_chain():
    def program(x):
        for step in range(200):
            x = (x * 0.99 + step / 100).tanh()
        return x

    one, other = torch.linspace(-1, 1, 6, requires_grad=True), torch.linspace(-1, 1, 6, requires_grad=True)
    lampwork.compile(program, options={"cache": False})(one).sum().backward()
    program(other).sum().backward()
    torch.testing.assert_close(one.grad, other.grad)
