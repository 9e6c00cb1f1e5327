"""Variances of no elements are NaN, whatever is added to their number."""

from __future__ import annotations

import pytest
import torch

import lampwork


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("shape, dim", [((0, 0, 0), None), ((3, 0), 1), ((0,), 0), ((2, 0, 3), (1, 2)), ((4, 5), 1)])
def test_variances(shape, dim, dynamic):
    for function in (torch.var, torch.std, torch.var_mean):
        for correction in (-5, -0.5, 0, 1):
            program = lambda x: function(x, dim, correction=correction)
            for dtype in (torch.float32, torch.float16):
                x = torch.ones(shape, dtype=dtype)
                found, expected = lampwork.compile(program, dynamic=dynamic)(x), program(x)
                torch.testing.assert_close(found, expected, equal_nan=True)
