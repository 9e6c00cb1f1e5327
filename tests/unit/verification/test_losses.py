"""Loss curves and eager's noise."""

from __future__ import annotations

from lampwork.verification.losses import Losses

EAGER = (2.0, 1.5, 1.2, 1.0)
WIDE = (2.0, 1.5 + 1e-6, 1.2 + 2e-6, 1.0 + 1e-6)
ROUNDED = ((2.0, 1.5 - 3e-6, 1.2, 1.0 + 1e-5),)


def test_noise_grows_to_the_largest_so_far():
    noise = Losses(EAGER, EAGER, WIDE, ROUNDED).noise
    assert [round(each * 1e6) for each in noise] == [0, 3, 3, 10]


def test_a_curve_within_the_noise_is_inside():
    ours = (2.0, 1.5 + 1e-5, 1.2 - 1e-5, 1.0 + 5e-5)
    losses = Losses(ours, EAGER, WIDE, ROUNDED)
    assert losses.inside and losses.outside == []
    assert "inside eager's noise" in losses.sentence()


def test_one_step_outside_is_named():
    ours = (2.0, 1.5, 1.2 + 1e-3, 1.0)
    losses = Losses(ours, EAGER, WIDE, ROUNDED)
    assert losses.outside == [2] and not losses.inside
    assert "step 2: 1.201" in losses.sentence()


def test_other_seeds_are_told_of():
    ours = (2.0, 1.5, 1.3, 1.0)
    seeds = ((1.9, 1.4, 1.1, 0.9), (2.1, 1.6, 1.4, 1.1))
    assert "inside eager's spread over 3 seeds" in Losses(ours, EAGER, WIDE, ROUNDED, seeds).sentence()
    assert "outside eager's spread" in Losses((2.0, 1.5, 9.0, 1.0), EAGER, WIDE, ROUNDED, seeds).sentence()


def test_a_curve_that_ends_early_or_is_not_a_number_is_outside():
    assert Losses(EAGER[:2], EAGER, WIDE, ROUNDED).outside == [2, 3]
    nan = float("nan")
    assert Losses((2.0, nan, 1.2, 1.0), EAGER, WIDE, ROUNDED).outside == [1]
