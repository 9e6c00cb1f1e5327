"""`ldexp` of a float and of whole numbers: C's takes an `int`, so eager's CPU kernel sees the low 32 bits alone."""

from __future__ import annotations

import pytest
import torch

import lampwork


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("exponent", [2**62 - 1, 2**40 + 3, 1 - 2**33, 2**31, 2**31 - 1, -(2**31), 5, -1050])
def test_beyond_int(exponent, dtype, count):
    x, y = torch.full((count,), 0.75, dtype=dtype), torch.full((count,), exponent)
    compiled = lampwork.compile(lambda x, y: torch.ldexp(x, y), options={"cache": False})
    assert torch.equal(compiled(x, y), torch.ldexp(x, y))
