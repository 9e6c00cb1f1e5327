"""A view as a wider type begins at whole elements of it: eager raises where a tensor does not, whether the view is read
or only its shape. What nobody reads was not made, and served tensors that begin elsewhere."""

from __future__ import annotations

import pytest
import torch

import lampwork

PROGRAMS = {
    "complex": lambda x: torch.view_as_complex(x) * 2,
    "complex, unread": lambda x: torch.ones(torch.view_as_complex(x).shape[0]),
    "double": lambda x: x.view(torch.float64) * 2,
    "double, unread": lambda x: torch.ones(x.view(torch.float64).shape[0]),
    "part, unread": lambda x: torch.ones(x[1:].view(torch.int64).shape[0]),
    "narrower": lambda x: x.view(torch.int16) + 1,
}


def outcome(function, x):
    try:
        return function(x)
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_tensors_that_begin_elsewhere(program, dynamic):
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    memory = torch.arange(24.0)
    for offset in (0, 3, 2, 5, 4):
        x = memory.as_strided((3, 2), (4, 1), offset)
        found, expected = outcome(compiled, x), outcome(program, x)
        assert found == expected if isinstance(expected, str) else torch.equal(found, expected), offset
