"""What an operator gives lazily conjugated (`lu_solve` from the right, `dot`) is that, and counts as its conjugate in all
that reads it."""

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
    "nothing": lambda x: solved(x[:0]),
    "dot": lambda x: torch.dot(x[0].conj(), x[1].conj()),
    "vdot": lambda x: torch.vdot(x[0], x[1].conj()),
    "vdot of conjugates": lambda x: torch.vdot(x[0].conj(), x[1].conj()) + torch.dot(x[0].conj(), x[1]),
    "trapezoid": lambda x: torch.trapz(x, solved(x)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name):
    x = torch.randn(2, 3, dtype=torch.complex64, generator=torch.Generator().manual_seed(1))
    program = PROGRAMS[name]
    expected, found = program(x), lampwork.compile(program)(x)
    torch.testing.assert_close(found, expected)
    assert found.stride() == expected.stride()
    assert found.is_conj() == expected.is_conj()


@pytest.mark.parametrize("wanted", [False, True])
def test_their_numbers_are_refused_as_they_are(wanted):
    program = lambda x, y: torch.view_as_real(torch.vdot(x, y.conj()))
    x, y = (torch.randn(3, dtype=torch.complex64, requires_grad=wanted) for _ in range(2))
    for function in (program, lampwork.compile(program)):
        with pytest.raises(RuntimeError, match="unresolved conjugated"):
            function(x, y)


def test_gradients():
    program = lambda x, y: torch.vdot(x, y.conj()) * torch.dot(x.conj(), y.conj())
    found = []
    for function in (program, lampwork.compile(program)):
        generator = torch.Generator().manual_seed(1)
        x, y = (torch.randn(3, dtype=torch.complex64, generator=generator).requires_grad_() for _ in range(2))
        function(x, y).abs().backward()
        found.append((x.grad, y.grad))
    torch.testing.assert_close(found[1], found[0])
