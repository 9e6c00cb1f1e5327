"""A tensor that a function transform had wrapped, and the program kept, raised an error of the compiler's as its own."""

from __future__ import annotations

import torch
from torch import nn

import lampwork


def test_weights_that_a_layer_was_called_with():
    """`nn.GRU` keeps its weights in a list, wrapped ones after `functional_call` inside of `torch.func.grad`."""
    torch.manual_seed(0)
    module = nn.GRU(5, 6)

    def program(x):
        parameters = {name: each.detach() for name, each in module.named_parameters()}

        def loss(given):
            return torch.func.functional_call(module, given, (x,))[0].square().sum()

        return torch.func.grad(loss)(parameters)

    compiled = lampwork.compile(program, options={"cache": False})
    for length in (3, 4, 5):
        x = torch.rand(length, 2, 5)
        torch.testing.assert_close(compiled(x), program(x))
