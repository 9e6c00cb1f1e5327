"""Inputs of several element types in one storage that is written were an error of the compiler; now they are views of one
row of elements, or a break."""

from __future__ import annotations

import pytest
import torch

import lampwork


def fills(x, z):
    z.fill_(3)
    return x + 1


def scales(x, z):
    x.mul_(2)
    return z * 2, x


def writes_parts(x, z):
    x[..., :1].add_(1)
    z[..., 1:] = 3
    return x.sum(), z.clone()


def _parts(begin, end, first, last, step=1, dtype=torch.complex64):
    x = torch.arange(8.0)
    return x[begin:end], x.view(dtype)[first:last:step]


INPUTS = {
    "all": lambda: (lambda x: (x, torch.view_as_complex(x)))(torch.arange(8.0).view(4, 2)),
    "complex first": lambda: (lambda z: (torch.view_as_real(z), z))(torch.arange(8.0).to(torch.complex64)),
    "part": lambda: _parts(2, 7, 2, 4),
    "ahead": lambda: _parts(4, 7, 1, 4),
    "strided": lambda: _parts(2, 7, 1, 4, 2),
    "in the middle": lambda: _parts(1, 7, 1, 3),
    "integers": lambda: _parts(0, 8, 0, 8, 1, torch.int32),
    "doubles": lambda: _parts(0, 8, 1, 3, 1, torch.float64),
    "truths": lambda: (lambda x: (x, x.view(torch.bool)))(torch.ones(8, dtype=torch.uint8)),
}


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("program", [fills, scales, writes_parts])
def test_is_as_in_eager(program, name):
    compiled = lampwork.compile(program, options={"cache": False})
    found = []
    for function in (program, compiled):
        inputs = INPUTS[name]()
        results = function(*inputs)
        found.append((*inputs, *(results if isinstance(results, tuple) else (results,))))
    for theirs, mine in zip(*found, strict=True):
        assert theirs.dtype == mine.dtype and torch.equal(theirs, mine)
    fallbacks = [each.id for each in lampwork.stats(compiled)["fallbacks"]]
    assert fallbacks == (["aliasing"] if name in ("in the middle", "truths") else [])


@pytest.mark.parametrize("dtype", [torch.float32, torch.int16, torch.complex128])
def test_nothing_from_beyond_the_end(dtype):
    program = lambda x: x.tensor_split(2, 0)[1][2:].view(dtype)
    compiled = lampwork.compile(program, options={"cache": False})
    for rows in (1, 3):
        x = torch.zeros(rows, 2, dtype=torch.float64)
        found, expected = compiled(x), program(x)
        assert found.shape == expected.shape and found.stride() == expected.stride() and found.dtype == dtype
    assert not lampwork.stats(compiled)["fallbacks"]
