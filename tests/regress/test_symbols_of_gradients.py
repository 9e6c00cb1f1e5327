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
