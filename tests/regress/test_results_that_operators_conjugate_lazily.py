"""What an operator gives lazily conjugated (`lu_solve` from the right) counts as its conjugate in all that reads it."""

from __future__ import annotations

import pytest
import torch

import lampwork


def solved(x):
    matrix = torch.eye(3, dtype=x.dtype) * 3 + torch.arange(9).view(3, 3) * (0.1 + 0.2j)
    return torch.linalg.lu_solve(*torch.linalg.lu_factor(matrix), x, left=False)


PROGRAMS = {
    "whole": solved,
    "several": lambda x: torch.stack([(found := solved(x)), found * 2]),
    "part": lambda x: solved(x)[:, 1:],
    "product": lambda x: solved(x)[:, 1:] * 1,
    "real": lambda x: solved(x).real * 1,
    "imaginary": lambda x: solved(x).imag * 1,
    "transposed": lambda x: solved(x).mT * 1,
    "conjugate": lambda x: solved(x).conj() * 1,
    "adjoint": lambda x: solved(x).mH,
    "numbers": lambda x: torch.view_as_real(solved(x).resolve_conj()) * 1,
    "written": lambda x: (found := solved(x), found[:, 1:].mul_(2j))[0],
    "trapezoid": lambda x: torch.trapz(x, solved(x)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name):
    x = torch.randn(2, 3, dtype=torch.complex64, generator=torch.Generator().manual_seed(1))
    program = PROGRAMS[name]
    expected, found = program(x), lampwork.compile(program)(x)
    torch.testing.assert_close(found, expected)
    assert found.stride() == expected.stride()
