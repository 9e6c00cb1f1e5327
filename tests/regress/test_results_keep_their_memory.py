"""What a call returned is not written to by the next call. A reshape whose sizes vary may be left to ATen, which gives the
memory of its operand though the operator's schema does not say so: that was memory which every call uses again."""

from __future__ import annotations

import pytest
import torch

import lampwork
from lampwork import _torch


def reshaped(x):
    y = (x + 1).movedim(2, 0)
    return y, y.reshape(-1, 2), torch.cat([x, x])


def reshaped_alone(x):
    return (x * 2).transpose(0, 1).reshape(2, -1)


def reshaped_twice(x):
    y = (x - 1).transpose(0, 2).reshape(-1, 4)
    return y.reshape(2, -1), y + 1


@pytest.mark.parametrize("program", [reshaped, reshaped_alone, reshaped_twice])
@pytest.mark.parametrize("make", [lambda: torch.randn(6, 3, 4).permute(2, 1, 0), lambda: torch.randn(4, 3, 8)])
def test_results_of_calls(program, make):
    compiled = lampwork.compile(program, dynamic=True)
    inputs = [make() for _ in range(4)]
    found, expected = [compiled(x) for x in inputs], [program(x) for x in inputs]
    for one, other in zip(found, expected):
        one, other = (each if isinstance(each, tuple) else (each,) for each in (one, other))
        assert all(map(torch.equal, one, other))
        assert [each.stride() for each in one] == [each.stride() for each in other]


@pytest.mark.parametrize(
    "op", [torch.ops.aten._unsafe_view.default, torch.ops.aten.view.default, torch.ops.aten.lift.default]
)
def test_operators_that_give_memory_of_arguments(op):
    x = torch.randn(4, 3)
    sizes = [] if op is torch.ops.aten.lift.default else [[2, 6]]
    assert op(x, *sizes).data_ptr() == x.data_ptr()
    assert _torch.gives_memory_of_arguments(op)
    copied = _torch.copying_variant(op)(x, *sizes)
    assert copied.data_ptr() != x.data_ptr() and torch.equal(copied, op(x, *sizes))
