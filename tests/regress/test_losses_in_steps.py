"""`soft_margin_loss` and its gradient overflow where eager's do, whose operators keep each step in the type of the input
or of both operands."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

import lampwork

HALF, BRAIN, SINGLE, DOUBLE = torch.float16, torch.bfloat16, torch.float32, torch.float64
TYPES = [
    (HALF, HALF),
    (HALF, SINGLE),
    (BRAIN, DOUBLE),
    (SINGLE, HALF),
    (SINGLE, SINGLE),
    (SINGLE, DOUBLE),
    (DOUBLE, SINGLE),
]


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_soft_margin_loss(reduction):
    program = lambda x, y: F.soft_margin_loss(x, y, reduction=reduction)
    compiled = lampwork.compile(program)
    for (of_x, of_y), shape in itertools.product(TYPES, [(), (9,)]):
        x, y = (torch.randn(shape) * 30).to(of_x), (12 * torch.randn(shape).sign()).to(of_y)
        results = []
        for each in (program, compiled):
            leaf = x.clone().requires_grad_()
            loss = each(leaf, y)
            loss.sum().backward()
            results.append((loss.detach(), leaf.grad))
        for theirs, ours in zip(*results):
            half = theirs.dtype in (HALF, BRAIN)
            tolerances = {"rtol": 1e-2, "atol": 1e-3} if half else {"rtol": 1e-5, "atol": 1e-6}
            torch.testing.assert_close(ours, theirs, equal_nan=True, **tolerances)
