"""Medians of a dimension of stride 0: ATen's kernel reads memory that nobody wrote; compiled, they are right."""

from __future__ import annotations

import pytest
import torch

import lampwork


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", [torch.median, torch.nanmedian])
def test_numbers_are_those_of_a_copy(function, dynamic):
    def program(x):
        y = x.expand(4, *x.shape)
        x[:] = x * 2
        return *function(y, 0), *function(y, 1, keepdim=True), function(y)

    compiled = lampwork.compile(program, dynamic=dynamic)
    for rows in (3, 5, 1):
        x = torch.randn(rows, 2)
        twice = (x * 2).expand(4, rows, 2).contiguous()
        expected = (*function(twice, 0), *function(twice, 1, keepdim=True), function(twice))
        found = compiled(x)
        for place, (ours, theirs) in enumerate(zip(found, expected)):
            if place != 1:  # which of equal elements it finds is its affair
                assert torch.equal(ours, theirs)
        assert torch.equal(twice.gather(0, found[1][None])[0], expected[0])
