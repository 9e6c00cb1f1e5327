"""Eager's kernels raise for element types that they do not know, read or not, whatever the sizes are: also of tensors
that are too large to ask a kernel about, and of sizes that contents decide."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork

PROGRAMS = {
    "product": lambda x: x.bool() @ x.bool(),
    "batched product": lambda x: torch.bmm(x.bool()[None], x.bool()[None]),
    "as many rows as are true": lambda x: x.nonzero().bool() @ x.bool()[:2],
    "group_norm": lambda x: F.group_norm(x.long()[None], 10),
    "softmax": lambda x: torch._softmax(x.long(), 1, False),
    "glu": lambda x: F.glu(x.long()),
    "logcumsumexp": lambda x: x.long().logcumsumexp(0),
    "avg_pool2d": lambda x: F.avg_pool2d(x.bool()[None], 5),
    "conv2d": lambda x: F.conv2d(x.bool()[None], x.bool()[None, None, :3, :3]),
    "prelu": lambda x: F.prelu(x.to(torch.complex64), torch.ones(1, dtype=torch.complex64)),
}


@pytest.mark.parametrize("read", [False, True], ids=["not read", "read"])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_as_eager(program, read):
    def function(x):
        result = program(x)
        return (result, x * 2)[not read :]

    x = torch.ones(100, 100)
    with pytest.raises(NotImplementedError) as expected:
        function(x)
    with pytest.raises(NotImplementedError) as raised:
        lampwork.compile(function, options={"cache": False})(x)
    assert str(raised.value) == str(expected.value)
