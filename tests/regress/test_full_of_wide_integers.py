"""`torch.full` with an integer that 64 bits do not hold with a sign, and no dtype, is refused as in eager."""

from __future__ import annotations

import pytest
import torch

import lampwork


@pytest.mark.parametrize("number", [2**63, 2**64 - 1])
def test_refused(number):
    compiled = lampwork.compile(lambda x, number: x + torch.full((2,), number), options={"cache": False})
    with pytest.raises(RuntimeError, match="without overflow"):
        compiled(torch.ones(2, dtype=torch.int64), number)
    wide = lampwork.compile(lambda number: torch.full((2,), number, dtype=torch.uint64), options={"cache": False})
    torch.testing.assert_close(wide(number), torch.full((2,), number, dtype=torch.uint64))
