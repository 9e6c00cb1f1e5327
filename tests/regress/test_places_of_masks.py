"""Places that a program finds are its own: what it writes to them changes neither later ones nor what masks pick."""

from __future__ import annotations

import pytest
import torch

import lampwork


def found_twice(x):
    return x.nonzero(), x.nonzero()


def written_before_they_are_found_again(x):
    places = x.nonzero()
    places.add_(5)
    return x.nonzero(), places


def written_before_the_mask_is_used(x):
    mask = x > 0
    places = mask.nonzero()
    places += 1
    return x[mask], places


def parts(x):
    rows, columns = torch.where(x > 0)
    rows.zero_()
    return torch.where(x > 0), x[x > 0], rows, columns


@pytest.mark.parametrize(
    "program", [found_twice, written_before_they_are_found_again, written_before_the_mask_is_used, parts]
)
def test_places_are_separate(program):
    compiled = lampwork.compile(program, options={"cache": False})
    for rows in (3, 4, 0):
        x = torch.randn(rows, 5)
        expected, ours = program(x), compiled(x)
        torch.testing.assert_close(ours, expected, rtol=0, atol=0)
        first, second = (each[0] if isinstance(each, tuple) else each for each in ours[:2])
        assert not rows or first.untyped_storage().data_ptr() != second.untyped_storage().data_ptr()
    assert not lampwork.stats(compiled)["fallbacks"]
