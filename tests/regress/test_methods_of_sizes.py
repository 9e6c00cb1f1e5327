"""`abs` of a size that varies, before a break: PyTorch's own method of it was interpreted, and called itself."""

from __future__ import annotations

import operator

import pytest
import torch

import lampwork


@pytest.mark.parametrize("function", [abs, operator.abs])
def test_absolute_sizes_before_a_break(function):
    @torch.compiler.disable
    def outside(value):
        seen.append(value)

    def program(x):
        size = function(x.shape[0] - 3)
        outside(size)
        return x * size

    seen: list[int] = []
    compiled = lampwork.compile(program)
    for rows in (4, 2, 1, 7):
        assert torch.equal(compiled(torch.ones(rows, 2)), torch.ones(rows, 2) * abs(rows - 3))
    assert seen == [1, 1, 2, 4]
