"""The gradient of a batch norm whose tangent has another layout than its input, beside a dimension of one element.

PyTorch's own kernel on the CPU (2.13) mistakes the tangent's layout there, so the formula is the reference.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

import lampwork


def by_formula(x, weight, bias):
    mean, variance = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), unbiased=False, keepdim=True)
    return (x - mean) / (variance + 1e-5).sqrt() * weight[:, None, None] + bias[:, None, None]


def test_a_spectrogram_that_is_turned():
    """As audio encoders turn it: bands are the channels of the norm, then columns of an image."""
    torch.manual_seed(0)
    x, weights = torch.randn(2, 1, 8, 6), torch.randn(2, 1, 6, 8)

    def turned(norm):
        def program(x, weight, bias):
            y = norm(x.transpose(1, 3), weight, bias).transpose(1, 3).permute(0, 1, 3, 2)
            return (y * weights).sum()

        return program

    found = []
    compiled = lampwork.compile(turned(lambda *given: F.batch_norm(given[0], None, None, *given[1:], True)))
    for program in (compiled, turned(by_formula)):
        leaves = torch.ones(6, requires_grad=True), torch.zeros(6, requires_grad=True)
        program(x, *leaves).backward()
        found.append([each.grad for each in leaves])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
