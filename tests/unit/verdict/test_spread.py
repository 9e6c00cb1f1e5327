"""Results that random numbers decide are held against eager's spread."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from lampwork.verdict.spread import SEEDS, outside


def results(program, first):
    found = []
    for seed in range(first, first + SEEDS):
        torch.manual_seed(seed)
        found.append({"loss": program(), "steps": 3})
    return found


X = torch.randn(200, 20, generator=torch.Generator().manual_seed(0))


def dropped(p, scale=1.0):
    return lambda: F.dropout(X, p) * scale


@pytest.mark.parametrize("program", [dropped(0.3), lambda: dropped(0.5)().square().mean(), lambda: torch.randn(50)])
def test_other_random_numbers_of_the_same_kind(program):
    assert outside(results(program, 100), results(program, 0)) == ()


@pytest.mark.parametrize(
    "program",
    [dropped(0.35), dropped(0.3, 0.97), lambda: F.dropout(X, 0.3).roll(1, 0), lambda: X, lambda: X * torch.nan],
)
def test_what_is_drawn_or_computed_otherwise(program):
    assert outside(results(program, 100), results(dropped(0.3), 0))


def test_what_no_random_number_decides_is_equal():
    eager = results(lambda: X, 0)
    ours = [{**each, "steps": 4} for each in eager]
    assert outside(ours, eager) == ("steps: 4 instead of 3",)
    assert outside([{**each, "loss": X.half()} for each in eager], eager)
