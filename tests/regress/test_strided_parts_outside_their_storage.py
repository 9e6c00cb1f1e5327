"""Copies of strided parts that reach out of their storage raise, also where their elements are never looked
at."""

from __future__ import annotations

import pytest
import torch

import lampwork

PARTS = {
    "a copy": lambda x: x * torch.as_strided_copy(x, (2, 2), (1, 2), 3).dim(),
    "by name": lambda x: x * torch.as_strided_copy(x, size=(2, 2), stride=(1, 2), storage_offset=3).dim(),
    "written": lambda x: x * torch.as_strided_scatter(x, torch.ones(2, 2), (2, 2), (1, 2), 3).dim(),
    "of a result": lambda x: x * torch.as_strided_copy(x * 2, (5,), (1,)).dim(),
}


@pytest.mark.parametrize("program", PARTS.values(), ids=PARTS)
def test_outside(program):
    x = torch.arange(4.0)
    with pytest.raises(RuntimeError, match="out of bounds for storage") as eager:
        program(x)
    with pytest.raises(RuntimeError, match="out of bounds for storage") as ours:
        lampwork.compile(program)(x)
    assert str(ours.value) == str(eager.value)
