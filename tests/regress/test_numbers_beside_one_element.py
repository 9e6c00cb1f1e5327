"""A number that varies was a double beside a tensor without dimensions. A power of it was computed in double precision
and converted, so that a write to the result went unnoticed where its derivative reads the result."""

from __future__ import annotations

import pytest
import torch

import lampwork


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (3,)], ids=str)
def test_a_result_that_is_written_before_the_backward_pass(shape, dtype):
    compiled = lampwork.compile(lambda x, base: base**x, dynamic=True, options={"cache": False})
    for base in (0.5, 1.5, 2.5):
        x = torch.full(shape, -0.5, dtype=dtype, requires_grad=True)
        result = compiled(x, base)
        assert result.dtype == dtype
        torch.testing.assert_close(result, base**x)
        with torch.no_grad():
            result.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()
    assert not lampwork.stats(compiled)["fallbacks"]
