"""A part of known sizes, of a tensor whose strides vary between calls, lies in that tensor's memory; so does what it was
before its shape was changed in place."""

from __future__ import annotations

import pytest
import torch

import lampwork

CHANGES = {
    "squeeze_": lambda x: x.squeeze_(),
    "t_": lambda x: x.t_(),
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "as_strided_": lambda x: x.as_strided_((2,), (3,)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_written_after_the_change(change):
    def program(x):
        part = torch.as_strided(x, (2, 2), (1, 2))
        change(part)
        part.mul_(3)
        return (part,)

    compiled = lampwork.compile(program, options={"cache": False})
    for size, strides in ((4, (2, 1)), (9, (4, 2)), (13, (6, 3))):
        memories = [torch.arange(float(size)) for _ in range(2)]
        results = [each(memory.as_strided((2, 2), strides))[0] for each, memory in zip((program, compiled), memories)]
        assert torch.equal(*results) and results[0].stride() == results[1].stride()
        assert torch.equal(*memories)
