"""Tensors that are the conjugate or the negative of what lies in their memory. A write to one left the bit on what it is
a view of, or lost it, and `torch.real` of it raised in the compiler; `as_strided` of one lost it, and so did a write
through a view that goes to all of the memory."""

from __future__ import annotations

import pytest
import torch

import lampwork


def _inverse_transform(x):
    y = torch.fft.ifft(x.real)  # a conjugate view
    y *= x
    return torch.real(y), torch.imag(y) * 2, y


def _conjugate(x):
    y = x.clone()
    z = y.conj()
    z += x
    return torch.view_as_real(y) * 2, torch.real(z), torch.imag(z) + 1, y


def _conjugate_of_conjugate(x):
    y = x.clone()
    z = y.conj()
    z.mul_(2)
    return torch.view_as_real(z.conj()), z.conj() + 1, y


def _negated(x):
    y = x.clone()
    z = y.conj().imag  # a negated view
    z += 3
    return y, z * 2, y.imag


def _part_of_a_conjugate(x):
    y = x.clone()
    z = y.conj()[1:]
    z.copy_(x[:-1])
    return y, torch.view_as_real(z.resolve_conj()), z.real


def _strided(x):
    y = x.clone().conj()
    return y.as_strided((2, 2), (2, 1), 1) * 2, y.imag.as_strided((2,), (2,), 3) + 1, y.as_strided((3,), (1,), 0)


def _strided_and_moved(x):
    y = torch.fft.ihfft2(x.real, dim=(0, 1))
    y.t_()
    return y.as_strided((2, 2), (2, 1), y.storage_offset()).neg(), y * 2


def _written_through(x):
    y = x.clone()
    z = y.conj()
    z.as_strided((3,), (1,), 1).copy_(x.flatten()[2:5])
    z.imag.as_strided((2,), (4,), 1).mul_(3)
    z.unfold(0, 1, 2).add_(1)
    return y, z, z.real * 2


PROGRAMS = [
    _inverse_transform, _conjugate, _conjugate_of_conjugate, _negated, _part_of_a_conjugate, _strided,
    _strided_and_moved, _written_through,
]  # fmt: skip


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_lazy_bits(program, dynamic):
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    for length in (5, 4):
        x = torch.randn(length, 3, dtype=torch.complex64)
        for found, expected in zip(compiled(x.clone()), program(x.clone())):
            torch.testing.assert_close(found, expected)
            assert found.is_conj() == expected.is_conj() and found.is_neg() == expected.is_neg()
            assert found.stride() == expected.stride()
    assert not lampwork.stats(compiled)["fallbacks"]


@pytest.mark.parametrize("given", [torch.conj, lambda z: z.conj().imag, lambda z: z.conj()[1:]])
@pytest.mark.parametrize(
    "program",
    [
        lambda z: z.as_strided((2, 2), (2, 1), 2) * 2,
        lambda z: z.as_strided((2, 2), (2, 1), 2).mul_(2),
        lambda z: (z.unfold(0, 2, 2).mul_(2), z * 1),
    ],
)
def test_lazy_bits_of_arguments(program, given):
    compiled = lampwork.compile(program, options={"cache": False})
    memories = [torch.complex(torch.arange(30.0).view(5, 6), torch.ones(5, 6)) for _ in range(2)]
    expected, found = program(given(memories[0])), compiled(given(memories[1]))
    for one, other in zip(*((each if isinstance(each, tuple) else (each,)) for each in (found, expected))):
        assert torch.equal(one, other) and one.is_conj() == other.is_conj()
    assert torch.equal(*memories)
