"""Eager refuses arguments at the sizes of a call, whether the result is read or not: also where sizes vary, and an
entry serves others."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork

PROGRAMS = {
    "dilation": lambda x: F.conv2d(x, torch.ones(1, 3, 2, 2), dilation=x.shape[2] - 6),
    "padding": lambda x: F.conv2d(x, torch.ones(1, 3, 2, 2), padding=x.shape[2] - 7),
    "no dilation": lambda x: F.conv2d(x, torch.ones(1, 3, 2, 2), dilation=0),
    "boundaries": lambda x: torch.bucketize(x, x),
    "types": lambda x: torch.complex(x, x.double()),
    "reflected": lambda x: F.pad(x, (x.shape[2] - 4,) * 2, mode="reflect"),
    "product": lambda x: x[0, 0] @ torch.ones(7, 7),
    "out of the storage": lambda x: torch.as_strided_scatter(x.flatten(), torch.ones(2), (2,), (150,)),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_not_read(program, dynamic):
    def function(x):
        program(x)
        return x * 2

    compiled = lampwork.compile(function, dynamic=dynamic, options={"cache": False})
    for size in (8, 7, 6, 9, 7, 20):
        x = torch.ones(1, 3, size, size)
        try:
            expected = function(x)
        except RuntimeError as error:
            with pytest.raises(RuntimeError) as raised:
                compiled(x)
            assert str(raised.value) == str(error)
        else:
            assert torch.equal(compiled(x), expected)
