"""Layouts of gradients at sizes which the backward half wrote by others, after the forward half had chosen what it hands
on."""

from __future__ import annotations

import torch
from torch.nn import functional as F

import lampwork


def test_channels_in_groups():
    def program(x, weight, bias, y):
        made = F.conv3d(x, weight, bias, padding=1, dilation=2, groups=3)
        return torch.diag_embed(y, 2), made[1::3]

    compiled = lampwork.compile(program, dynamic=True)
    found = []
    for function in (program, compiled):
        torch.manual_seed(0)
        channels = torch.randn(1, 2, 4, 3, 3).permute(0, 4, 2, 1, 3)
        leaves = [channels, torch.randn(3, 1, 1, 1, 1), torch.randn(3), torch.randn(5, 5)]
        leaves = [each.requires_grad_() for each in leaves]
        results = function(*leaves)
        tangents = [torch.ones(each.shape).mT.contiguous().mT for each in results]
        torch.autograd.backward(results, tangents)
        found.append([each.grad for each in leaves])
    for ours, expected in zip(found[1], found[0], strict=True):
        assert torch.equal(ours, expected) and ours.stride() == expected.stride()


def test_views_beside_their_base():
    """Its layout is found out on a tensor that lies as the argument does in a storage as large."""

    def program(x):
        return x.as_strided((2, 2), (1, 2), 10).logit()

    found = []
    for function in (program, lampwork.compile(program)):
        leaf = torch.linspace(0.1, 0.9, 14).as_strided((9,), (1,), 3).requires_grad_()
        result = function(leaf.narrow(-1, 2, 6))
        result.backward(torch.ones(2, 2))
        found.append((result, leaf.grad))
    for ours, expected in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, expected)
        assert ours.stride() == expected.stride()
