"""Sums of rows of an embedding: the kernel tells which bag an index is in unless it has a short way, by type and layout."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("columns", [1, 3])
def test_bags_of_rows(dtype, mode, dynamic, is_weighted, columns):
    if is_weighted and mode != "sum":
        pytest.skip("sums alone have weights")
    indices, offsets = torch.tensor([5, 1, 6, 5, 6]), torch.tensor([0, 3])
    weights = torch.rand(5).to(dtype) if is_weighted else None
    program = lambda x: F.embedding_bag(indices, x, offsets, mode=mode, per_sample_weights=weights)
    compiled = lampwork.compile(program, dynamic=dynamic)
    for layout in (torch.randn(7, columns), torch.randn(columns, 7).t()):
        x = layout.to(dtype).requires_grad_()
        y = layout.to(dtype).requires_grad_()
        found, expected = compiled(x), program(y)
        torch.testing.assert_close(found, expected)
        found.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
