"""Offsets in kernels for GPUs: what small buffers are indexed by may pass 2**31, what lies behind the end of a dimension
answers no condition, and the last part of a row is shorter than the others."""

from __future__ import annotations

import pytest
import torch

from tests.unit.codegen.triton.interpret import available
from tests.unit.codegen.triton.programs import assert_like_eager, program_of, sources

pytestmark = pytest.mark.skipif(bool(available()), reason=available())


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: (x[:, None] + y).reshape(40000, 62500).sum(1),
        lambda x, y: (x[:, None] * y).reshape(62500, 40000).amax(0),
        lambda x, y: (x[:, None] * y).reshape(-1).roll(7).view(40000, 62500).sum(1),
    ],
)
def test_loops_over_small_buffers_that_are_long_together(function):
    """Row and column of 2.5e9 positions are quotient and rest of the position. (Not run: it would take hours.)"""
    for kernel in sources(program_of(function, (torch.zeros(50000), torch.zeros(50000)))):
        if "//" in kernel.source:
            assert "tl.program_id(0).to(tl.int64)" in kernel.source


@pytest.mark.parametrize("side", [5, 70])
def test_diagonals_are_not_loaded_behind_their_end(side):
    """The places of a block behind the end of a row lie on diagonals, too: loads of these went out of bounds."""

    def program(x):
        x = x + 1
        x.diagonal(1).mul_(x.diagonal(-1) + x.diagonal(1))
        return x.triu(-2)

    assert_like_eager(program, torch.randn(side, side))


@pytest.mark.parametrize(
    "columns",
    [70001, *(pytest.param(20480 * 132 - less, marks=pytest.mark.slow) for less in (101, 1))],  # 40 s each
)
def test_last_parts_of_rows_that_begin_anywhere(columns):
    """The blocks of a part were all full up to the length of the others: those of the last one read the next row."""
    x = torch.zeros(2, columns)
    x[1] = 1
    assert_like_eager(lambda x: x.sum(1), x)
    assert_like_eager(lambda x: x.amax(1), x)


@pytest.mark.parametrize("length", [(1 << 31) - 3, 2_500_000_000, 5_000_000_000])
def test_ends_of_long_loops_have_64_bits(length):
    """Triton's constants have 32 bits where they fit, 2_500_000_000 as an unsigned number: the loop over a row of so
    many elements, which compares signed ones, did not run at all. (Not run: it would take hours.)"""
    (kernel,) = sources(program_of(lambda x: (x + 1).argmax(), (torch.zeros(1).expand(length),)))
    assert f"range(0, tl.full([], {length}, tl.int64), RBLOCK)" in kernel.source
