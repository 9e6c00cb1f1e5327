"""Strides of results in dimensions of one element follow those of the operand of the call, not of the captured one."""

from __future__ import annotations

import pytest
import torch

import lampwork

LAYOUTS = [
    [((1,), (1,)), ((1,), (2,)), ((1,), (3,))],
    [((1, 1), (1, 1)), ((1, 1), (3, 2))],
    [((1, 1, 1, 7), (7, 7, 7, 1)), ((1, 1, 1, 7), (1, 7, 7, 1)), ((1, 1, 1, 7), (0, 1, 2, 1))],
    [((3, 1), (1, 1)), ((3, 1), (1, 3)), ((3, 1), (2, 7))],
]
OPERATORS = {
    "deg2rad": torch.deg2rad,
    "angle": torch.angle,
    "polygamma": lambda x: torch.polygamma(1, x),
    "igamma": lambda x: torch.igamma(x, x),
    "copysign": lambda x: torch.copysign(x, -2.0),
    "nan_to_num": lambda x: x.long().nan_to_num(),
    "fill": lambda x: torch.fill(x, 2.0),
    "masked_index_put": lambda x: torch.ops.aten._unsafe_masked_index_put_accumulate(
        x, torch.ones(1, dtype=torch.bool), [torch.zeros(1, dtype=torch.int64)] * x.dim(), torch.ones(1)
    ),
    "rot90": lambda x: torch.rot90(x, 1, (0, 1)) if x.dim() > 1 else x.clone(),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", OPERATORS)
def test_strides(name, dynamic):
    for layouts in LAYOUTS:
        compiled = lampwork.compile(OPERATORS[name], dynamic=dynamic)
        for size, stride in layouts:
            x = torch.arange(1.0, 30.0).as_strided(size, stride)
            assert compiled(x).stride() == OPERATORS[name](x).stride(), (size, stride)
