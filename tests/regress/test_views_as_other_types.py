"""Views of inputs as elements of another size: of tensors without dimensions, and of rows that do not follow each other."""

from __future__ import annotations

import pytest
import torch

import lampwork

PROGRAMS = {
    "a number as bytes": (lambda x: x.flatten().view(torch.uint8), lambda: torch.tensor(7, dtype=torch.int32)),
    "a row as bytes": (lambda x: x[1].view(torch.uint8), lambda: torch.arange(6, dtype=torch.int32).view(2, 3)),
    "a column as bytes": (
        lambda x: x[:, 1:2].reshape(3, 1).view(torch.uint8), lambda: torch.arange(6, dtype=torch.int32).view(3, 2),
    ),
    "turned rows as bytes": (
        lambda x: x.t()[0].view(torch.uint8), lambda: torch.arange(6, dtype=torch.int16).view(3, 2).t().contiguous().t(),
    ),
    "bytes as numbers": (lambda x: x[4:12].view(torch.int32), lambda: torch.arange(16, dtype=torch.uint8)),
    "rows of bytes as numbers": (
        lambda x: x[:, 4:].view(torch.int16), lambda: torch.arange(24, dtype=torch.uint8).view(2, 12)[:, :8],
    ),
    "halves of nothing": (lambda x: x[:0].view(torch.float16), lambda: torch.ones(4)),
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_views_of_inputs(name, dynamic):
    program, make = PROGRAMS[name]
    x = make()
    compiled = lampwork.compile(program, dynamic=dynamic)
    expected, found = program(x), compiled(x)
    assert torch.equal(found, expected) and found.stride() == expected.stride()
    assert found.data_ptr() == expected.data_ptr()
    torch.testing.assert_close(compiled(x).sum(), expected.sum())
