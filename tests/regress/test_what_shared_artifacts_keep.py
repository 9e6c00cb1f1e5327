"""What modules of one class share keeps none of them alive: neither a function on one, nor a hook, that closes over it."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

import lampwork


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.after = None

    def forward(self, x):
        y = self.linear(x)
        return y if self.after is None else self.after(y)


def own_function(block):
    block.after = lambda y: y + block.linear.bias


def own_hook(block):
    block.register_forward_hook(lambda module, args, y: y + block.linear.bias)


@pytest.mark.parametrize("prepare", [own_function, own_hook])
def test_a_function_that_closes_over_its_module(prepare):
    x = torch.randn(3, 4)
    kept = lampwork.compile(Block(), options={"cache": False})
    prepare(kept)
    kept(x)
    dropped = []
    for _ in range(2):
        block = Block()
        prepare(block)
        ours = lampwork.compile(block, options={"cache": False})
        torch.testing.assert_close(ours(x), block(x))
        dropped.append(weakref.ref(block))
        del block, ours
    gc.collect()
    assert [each() for each in dropped] == [None, None]
    torch.testing.assert_close(kept(x), kept.__lampwork__.function(x))
