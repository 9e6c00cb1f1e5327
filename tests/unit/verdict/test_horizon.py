"""The arithmetic of break-even, on times that are made up."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lampwork.verdict.horizon import Estimate, Measured, break_even, payoff


def rounds(call: float, spread: float = 0.0, count: int = 40, seed: int = 0) -> tuple[float, ...]:
    drawn = random.Random(seed)
    return tuple(call * (1 + drawn.uniform(-spread, spread)) for _ in range(count))


def test_cost_comes_back_at_the_gain_of_each_call():
    found = payoff(Measured(rounds(0.010)), Measured(rounds(0.004), (3.0, 3.0)), 10_000)
    assert found.calls.value == pytest.approx(500)
    assert found.calls.lower == found.calls.upper == found.calls.value  # nothing varied
    assert found.speedup.value == pytest.approx(2.5)
    assert found.likelihood == 1.0
    assert found.saved is not None and found.saved.value == pytest.approx(10_000 * 0.006 - 3.0)


def test_one_cost_is_trusted_less_than_two_that_agree():
    alone = payoff(Measured(rounds(0.010)), Measured(rounds(0.004), (3.0,)))
    assert alone.calls.lower < 450 < 500 < 550 < alone.calls.upper


def test_drift_that_meets_both_alike_does_not_widen_the_answer():
    drift = [1 + 0.5 * math.sin(each) for each in range(60)]
    eager = Measured(tuple(0.010 * each for each in drift))
    ours = Measured(tuple(0.010 * each - 0.002 for each in drift), (1.0, 1.0))
    found = payoff(eager, ours)
    assert found.calls.value == pytest.approx(500) and found.calls.upper - found.calls.lower < 1


def test_noise_widens_it():
    found = payoff(Measured(rounds(0.010, 0.3, seed=1)), Measured(rounds(0.009, 0.3, seed=2), (1.0, 1.0)), 5_000)
    assert found.speedup.lower < 1.11 < found.speedup.upper
    assert found.calls.lower < 1000 < found.calls.upper
    assert 0 < found.likelihood < 1 or found.likelihood in (0.0, 1.0)


def test_what_is_not_faster_never_pays():
    found = payoff(Measured(rounds(0.004)), Measured(rounds(0.005), (1.0,)), 10**9)
    assert math.isinf(found.calls.value) and found.likelihood == 0.0


def test_what_costs_nothing_pays_at_once():
    assert break_even(0.0, 0.001) == 0.0 and break_even(0.0, -0.001) == math.inf


def test_rounds_must_be_the_same():
    with pytest.raises(ValueError, match="same rounds"):
        payoff(Measured(rounds(1.0, count=3)), Measured(rounds(1.0, count=4)))
    with pytest.raises(ValueError, match="same rounds"):
        payoff(Measured(()), Measured(()))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # machines may be busy
@given(
    st.floats(1e-6, 10), st.floats(0.05, 20), st.floats(0.0, 100), st.integers(1, 10**7), st.integers(0, 2**32)
)  # fmt: skip
def test_the_sign_of_what_is_saved_is_the_side_of_break_even(eager, ratio, cost, horizon, seed):
    slow = Measured(rounds(eager, 0.2, 12, seed))
    fast = Measured(rounds(eager * ratio, 0.2, 12, seed + 1), (cost, cost))
    found = payoff(slow, fast, horizon)
    assert found.saved is not None
    assert found.calls.lower <= found.calls.value <= found.calls.upper
    if found.saved.lower > 0:
        assert found.calls.lower <= horizon
    if found.saved.upper < 0:
        assert found.calls.upper >= horizon


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=50))
@example([math.inf, -math.inf])
def test_estimates_lie_within_their_draws(draws):
    found = Estimate.of(draws)
    assert min(draws) <= found.lower <= found.value <= found.upper <= max(draws)
