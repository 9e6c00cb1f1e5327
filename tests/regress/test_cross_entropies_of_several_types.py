"""A composite formula of eager's that writes in place rounds what is in between to the type of one operand."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

import lampwork

TYPES = (torch.float64, torch.float32, torch.float16)
LARGE = {torch.float64: 1.7e308, torch.float32: 3e38, torch.float16: 6e4}


@pytest.mark.parametrize(("of_x", "of_target", "of_weight"), list(itertools.product(TYPES, TYPES, (None, *TYPES))))
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_cross_entropy_of_large_logits(of_x, of_target, of_weight, reduction):
    x = torch.tensor([-1.25, -LARGE[of_x], 0.0, LARGE[of_x], 0.5], dtype=of_x)
    target = torch.tensor([0.25, 0.5, -1.0, 0.75, 0.0], dtype=of_target)
    weight = None if of_weight is None else torch.tensor([1.0, 0.5, LARGE[of_weight], 2.0, 0.0], dtype=of_weight)

    def program(x, target, weight):
        return F.binary_cross_entropy_with_logits(x, target, weight, reduction=reduction)

    try:
        expected = program(x, target, weight)
    except RuntimeError:
        with pytest.raises(RuntimeError):
            lampwork.compile(program)(x, target, weight)
        return
    torch.testing.assert_close(lampwork.compile(program)(x, target, weight), expected, equal_nan=True)
