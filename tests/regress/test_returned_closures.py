"""A function made in a compiled call leaves it with the globals of its module."""

import torch

import lampwork

SCALE = 3


def test_a_closure_is_returned():
    def program(x):
        y = x * 2

        def later(z):
            return z * SCALE + y

        return later

    x = torch.randn(4)
    fast = lampwork.compile(program)
    for _ in range(2):
        assert torch.equal(fast(x)(x), program(x)(x))
    assert not lampwork.stats(fast)["fallbacks"]
