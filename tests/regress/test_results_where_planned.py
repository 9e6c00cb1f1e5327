"""Operators that give the tensors of `out=` other memory, or another layout, do not write into planned memory."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork

LOSSES = [F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.soft_margin_loss, F.binary_cross_entropy]


@pytest.mark.parametrize("size", [4, 100])
@pytest.mark.parametrize("loss", LOSSES)
def test_losses_that_resize_their_result(loss, size):
    """`mse_loss(out=)` makes its result as large as its operands on the way: beside it lies other memory."""

    def program(x, other):
        target = (x > 0.5) if loss is not F.binary_cross_entropy else x.detach().round().double()
        made = other.mm(other)
        return made + 1, loss(x, target) * 2, made * 2

    x, other = torch.rand(size, size), torch.rand(3, 3)
    if loss is F.binary_cross_entropy:
        x = x.double()
    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        for mine, theirs in zip(compiled(x, other), program(x, other)):
            torch.testing.assert_close(mine, theirs)
