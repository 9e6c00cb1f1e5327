"""A float64 that int32 does not hold became the low bits of an int64 as int8 or int16; ATen converts to int32 first, and to
int64 for uint8 alone."""

from __future__ import annotations

import pytest
import torch

import lampwork
from lampwork.ir.interpret import convert
from lampwork.ir.kernel_interpret import cast

VALUES = [
    1002433135616.25, -1e12, 300.75, -300.75, 40000.5, -40000.5, 3e9, 5e9 + 77, 1e15 + 12345, -1e15 - 12345, 1e19,
    float("inf"), float("nan"), 2.0**31 - 0.5, -(2.0**31) - 0.5, 2.0**63,
]  # fmt: skip


@pytest.mark.parametrize("target", ["int8", "uint8", "int16", "uint16", "int32", "int64"])
@pytest.mark.parametrize("source", ["float64", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize("repeated", [1, 65])
def test_is_as_in_eager(source, target, repeated):
    x = torch.tensor(VALUES * repeated, dtype=torch.float64).to(getattr(torch, source))
    program = lambda x: (x + 0).to(getattr(torch, target))
    expected = program(x)
    assert torch.equal(lampwork.compile(program, options={"cache": False})(x), expected)
    assert convert(x.double().numpy(), target).tolist() == expected.tolist()
    assert [cast(each, target) for each in x.tolist()] == expected.tolist()
