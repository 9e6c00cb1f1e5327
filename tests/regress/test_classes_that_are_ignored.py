"""`ignore_index` that varies: the derivative of a cross entropy took it for a literal, and lowering failed."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import lampwork


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(8, 5), (2, 5, 3), (2, 5, 2, 3)])
def test_values_and_gradients(reduction, shape):
    def loss(x, target, ignored):
        return F.cross_entropy(x, target, ignore_index=ignored, reduction=reduction)

    compiled = lampwork.compile(loss)
    for ignored in (-100, 3, 2, 4):
        x = torch.randn(shape, requires_grad=True)
        target = torch.randint(5, (shape[0], *shape[2:]))
        results = []
        for function in (loss, compiled):
            x.grad = None
            value = function(x, target, ignored)
            value.sum().backward()
            results.append((value, x.grad))
        torch.testing.assert_close(results[1], results[0])
    assert lampwork.stats(compiled)["captures"] <= 3


@pytest.mark.parametrize("function", [torch.triu, torch.tril])
def test_diagonals(function):
    compiled = lampwork.compile(lambda x, diagonal: function(x, diagonal) * 2)
    x = torch.randn(5, 7)
    for diagonal in range(2, 8):
        torch.testing.assert_close(compiled(x, diagonal), function(x, diagonal) * 2)
    assert lampwork.stats(compiled)["captures"] <= 3
