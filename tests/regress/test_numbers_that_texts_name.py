"""Generated text names numbers that a call has: symbols made for multiples of others are written out."""

from __future__ import annotations

import pytest
import torch

import lampwork
from lampwork.ir.number import integer, leaf
from lampwork.ir.size import Symbol, add, mul
from lampwork.ir.source import Argument
from lampwork.ir.text import UnboundName


def halved_twice(x):
    if x.shape[-1] % 2 == 0:
        x = x[..., ::2] + 1
        if x.shape[-1] % 2 == 0:
            return x.reshape(-1, 2) * 2, x.shape[-1]
    return x * 2


def in_groups(x):
    if x.shape[0] % 8 == 0 and x.shape[0] // 8 > 2:
        groups = x.view(-1, 8)
        return groups.sum(1) if groups.shape[0] % 3 else groups.sum(0)
    return x + 1


@pytest.mark.parametrize("program, sizes", [(halved_twice, (16, 24, 64, 10, 2, 7)), (in_groups, (24, 32, 48, 40, 16))])
def test_sizes_that_are_multiples(program, sizes):
    compiled = lampwork.compile(program, options={"cache": False})
    for size in sizes:
        x = torch.arange(float(size))
        torch.testing.assert_close(compiled(x), program(x), rtol=0, atol=0)


def test_an_expression_has_numbers_of_the_call_only():
    size = leaf(Argument(0), "shape")
    assert integer(Symbol("s0"), {"s0": size}).leaves == (size,)
    with pytest.raises(UnboundName, match="m0"):
        integer(add(Symbol("s0"), mul(Symbol("m0"), 2)), {"s0": size})


TRANSFORMS = [
    lambda x: torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real,
    lambda x: torch.fft.fft2(x.transpose(0, 1)).imag,
    lambda x: torch.view_as_real(torch.fft.rfftn(x, dim=(0, 2, 1))),
    lambda x: torch.fft.irfft2(torch.fft.rfft2(x)),
    lambda x: torch.fft.hfft(x, dim=1),
    lambda x: torch.fft.fft(x, n=6, dim=1).real,
]


@pytest.mark.parametrize("number", range(len(TRANSFORMS)))
def test_fourier_transforms_of_other_sizes(number):
    program = TRANSFORMS[number]
    compiled = lampwork.compile(program, options={"cache": False})
    for size in (6, 8, 10, 5, 12):
        x = torch.randn(3, size, 4)
        expected, found = program(x), compiled(x)
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()
    stats = lampwork.stats(compiled)
    assert not stats["fallbacks"]
    assert stats["captures"] <= 4 or number == 4  # a lazily conjugated tensor has the sizes of its kernel


def test_a_shape_rule_of_pytorch_that_trips_over_symbols():
    """The sizes are fixed then; an error is eager's."""

    def program(x, k):
        return torch.linalg.matrix_exp(x[:k, :k]), torch.logcumsumexp(x, 0)

    compiled = lampwork.compile(program, options={"cache": False})
    for size in (4, 5, 6):
        x = torch.randn(size, size)
        torch.testing.assert_close(compiled(x, 3), program(x, 3))
