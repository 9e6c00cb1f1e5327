"""Element types that a kernel decides on: where sizes varied, a meta kernel's were believed, which promotes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork

TYPES = [(torch.float32, torch.float64), (torch.float64, torch.float32)]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("types", TYPES, ids=str)
def test_losses_of_two_types(types, reduction, dynamic):
    program = lambda x, y: F.soft_margin_loss(x, y, reduction=reduction)
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    for shape in ((7, 7), (7, 1)):
        x, y = torch.randn(7, 7, dtype=types[0]), torch.randn(shape, dtype=types[1])
        ours, theirs = compiled(x, y), program(x, y)
        torch.testing.assert_close(ours, theirs)
        assert ours.stride() == theirs.stride()
    assert not lampwork.stats(compiled)["fallbacks"]
