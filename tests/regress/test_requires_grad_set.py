"""`x.requires_grad_()` on a tensor of the caller was lost."""

from __future__ import annotations

import torch

import lampwork


def test_the_callers_tensor_requires_grad_afterwards():
    def program(x, y):
        x.requires_grad_()
        y.requires_grad_(False)
        return x.detach() * 2

    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        x, y = torch.ones(2), torch.ones(2, requires_grad=True)
        assert torch.equal(compiled(x, y), torch.full((2,), 2.0))
        assert x.requires_grad and not y.requires_grad


def test_it_is_seen_behind_a_break():
    @lampwork.disable
    def nothing():
        pass

    def program(x):
        x.requires_grad_()
        nothing()
        return x.requires_grad

    assert lampwork.compile(program, options={"cache": False})(torch.ones(2)) is True
