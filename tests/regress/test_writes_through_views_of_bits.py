"""A view of another type or of real and imaginary parts, written with a value that lies in memory as the view does not:
what its parent becomes was a view that such memory does not have, and the program was not compiled."""

from __future__ import annotations

import pytest
import torch

import lampwork


def parts_out(x, z):
    torch.sin(x, out=torch.view_as_real(z))
    return z * 1


def parts_copied(x, z):
    torch.view_as_real(z).copy_(x + 1)
    return z


def parts_set(x, z):
    torch.view_as_real(z)[:] = x * 2
    return z.abs()


def smaller(x, z):
    z.view(torch.int32).copy_(x.mT.int() if x.dim() == 2 else x.int().transpose(-1, -3))
    return z + 1


def larger(x, z):
    z.real.view(torch.int64).copy_(x.long()[..., 0])
    return z


def same(x, z):
    z.real.contiguous().view(torch.int64).copy_(x[..., 1].long())
    return z


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", [parts_out, parts_copied, parts_set, smaller, larger, same])
def test_writes(program, dynamic):
    compiled = lampwork.compile(program, dynamic=dynamic)
    for n in (2, 3):
        z = torch.randn(2, n, 2, dtype=torch.complex128)
        x = torch.randn(2, 2, n, 2).permute(3, 2, 0, 1)
        if program is smaller:
            z, x = torch.randn(n, 4), torch.randn(4, n) * 9
        other = z.clone()
        expected, found = program(x, other), compiled(x, z)
        torch.testing.assert_close(found, expected, rtol=2.4e-7, atol=0, equal_nan=True)
        torch.testing.assert_close(z, other, rtol=2.4e-7, atol=0, equal_nan=True)
        assert found.stride() == expected.stride()
    assert not lampwork.stats(compiled)["fallbacks"]
