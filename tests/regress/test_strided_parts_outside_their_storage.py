"""Copies of strided parts that reach out of their storage raise, also where their elements are never looked at; and a part
that lies in the storage, but after the tensor that it is a part of, is written."""

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


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("size, offset", [(2, 2), (1, 3), (4, 0), (0, 9), (0, 10**12)])
def test_after_the_tensor(size, offset, dynamic):
    def program(x):
        part = x[:3].as_strided_scatter(torch.full((size,), 9.0), (size,), (1,), offset)
        return part, torch.as_strided_copy(x[:2], (size,), (1,), offset)

    compiled = lampwork.compile(program, fullgraph=True, dynamic=dynamic)
    for length in (4, 6):
        x = torch.arange(float(length))
        for ours, eager in zip(compiled(x), program(x), strict=True):
            assert torch.equal(ours, eager)
    if size:
        with pytest.raises(RuntimeError, match="out of bounds for storage"):
            compiled(torch.arange(3.0))
