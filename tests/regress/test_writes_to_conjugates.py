"""A write to a lazily conjugated or negated tensor left the bit on what it is a view of, or lost it: `torch.real` of it
raised in the compiler."""

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


@pytest.mark.parametrize(
    "program", [_inverse_transform, _conjugate, _conjugate_of_conjugate, _negated, _part_of_a_conjugate]
)
def test_writes(program):
    compiled = lampwork.compile(program, options={"cache": False})
    for length in (5, 4):
        x = torch.randn(length, 3, dtype=torch.complex64)
        for found, expected in zip(compiled(x.clone()), program(x.clone())):
            torch.testing.assert_close(found, expected)
            assert found.is_conj() == expected.is_conj() and found.is_neg() == expected.is_neg()
            assert found.stride() == expected.stride()
    assert not lampwork.stats(compiled)["fallbacks"]
