"""`ldexp` had no shape rule: with symbols for sizes its meta kernel laid out empty and moved tensors in row-major order."""

from __future__ import annotations

import itertools

import pytest
import torch

import lampwork


def tensors(dtype, shape):
    for order in itertools.permutations(range(3)):
        yield torch.ones([shape[dim] for dim in order], dtype=dtype).permute([order.index(dim) for dim in range(3)])


@pytest.mark.parametrize("exponent", [torch.float32, torch.int64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
@pytest.mark.parametrize("shape", [(0, 1, 3), (2, 3, 1), (3, 2, 4)])
def test_strides(shape, dtype, exponent):
    compiled = lampwork.compile(torch.ldexp, dynamic=True, options={"cache": False, "recompile_limit": 50})
    for x in tensors(dtype, shape):
        for y in (torch.ones((), dtype=exponent), torch.ones(shape[-1:], dtype=exponent), x.to(exponent)):
            found, expected = compiled(x, y), torch.ldexp(x, y)
            assert found.stride() == expected.stride() and found.dtype == expected.dtype, (x.stride(), y.shape)
            assert torch.equal(found, expected)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("shape", [(2, 1, 1), (3,), (2, 3), (1, 1)], ids=str)
@pytest.mark.parametrize("whole", [torch.int64, torch.int32, torch.float32], ids=str)
def test_larger_exponents(shape, whole, dynamic):
    """A result that is resized is laid out as one that is made."""
    x, y = torch.ones(shape), torch.arange(6, dtype=whole).view(3, 2).t()
    program = lambda x, y: (torch.ldexp(x, y), torch.ldexp(x, y.contiguous()), torch.ldexp(x[..., :1], y))
    found, expected = lampwork.compile(program, dynamic=dynamic)(x, y), program(x, y)
    for mine, theirs in zip(found, expected, strict=True):
        assert torch.equal(mine, theirs) and mine.stride() == theirs.stride()


def test_exponents_of_contents():
    program = lambda x: torch.ldexp(x, torch.nonzero(x))
    x = torch.tensor([0.25, -0.25]).view(2, 1, 1)
    found, expected = lampwork.compile(program)(x), program(x)
    assert torch.equal(found, expected) and found.stride() == expected.stride()
