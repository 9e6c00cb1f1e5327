"""Losses whose meta kernels want sizes as numbers: of what a mask picks, they broke the graph."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import lampwork


@pytest.mark.parametrize(
    "loss",
    [
        lambda x, y: F.binary_cross_entropy_with_logits(x, y, pos_weight=torch.full((4,), 2.0)),
        lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none").sum(),
        lambda x, y: F.binary_cross_entropy(x.sigmoid(), y, reduction="sum"),
        lambda x, y: F.soft_margin_loss(x, 2 * y - 1),
    ],
    ids=["logits", "each", "chances", "margin"],
)
def test_loss(loss):
    x, y = torch.randn(6, 4), torch.randint(0, 2, (6, 4)).float()

    def program(x, mask):
        leaf = x[mask]
        return loss(leaf, y[mask])

    compiled = lampwork.compile(program, options={"cache": False})
    for seed in range(3):
        mask = torch.rand(6, generator=torch.Generator().manual_seed(seed)) > 0.3
        found = []
        for function in (compiled, program):
            leaf = x.clone().requires_grad_()
            value = function(leaf, mask)
            value.backward()
            found.append((value.detach(), leaf.grad))
        torch.testing.assert_close(found[0], found[1])
    stats = lampwork.stats(compiled)
    assert not stats["breaks"] and not stats["fallbacks"]


@pytest.mark.parametrize("value", [-0.5, 0.5])
def test_mask_of_one_element(value):
    """It was assumed that the mask does not pick one, which leaves none: and what picks nothing was not called, so
    that nobody found out."""
    program = lambda x: x[x < 0].sum()
    x = torch.full((1, 1), value, requires_grad=True)
    assert lampwork.compile(program, options={"cache": False})(x) == program(x)
