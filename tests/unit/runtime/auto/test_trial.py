"""Trials on times that are made up."""

from __future__ import annotations

import random

import pytest

from lampwork.runtime.auto.trial import EAGER, LEAST_ROUNDS, MOST_ROUNDS, TURN, Trial


def decided(times, ways=("default",), spread=0.0, late=0, most=1000):
    """The decision where ways take `times`, told of `late` calls later; and how many calls it took."""
    trial, drawn, open_calls = Trial(ways), random.Random(0), []
    for count in range(most):
        if trial.decision is not None:
            return trial, count
        open_calls.append(trial.next())
        if len(open_calls) > late:
            call = open_calls.pop(0)
            call.took(times[call.way] * (1 + drawn.uniform(-spread, spread)))
    raise AssertionError("never decided")


@pytest.mark.parametrize("late", [0, 1, 7, 30])
def test_the_faster_is_chosen(late):
    trial, calls = decided({EAGER: 1.0, "default": 0.5}, late=late)
    assert trial.decision == "default" and trial.seconds == {EAGER: 1.0, "default": 0.5}
    assert calls <= 2 * TURN * (LEAST_ROUNDS + 1) + late + 2 * TURN
    trial, _ = decided({EAGER: 1.0, "default": 1.2}, late=late)
    assert trial.decision == EAGER


def test_what_is_level_stays_eager():
    trial, calls = decided({EAGER: 1.0, "default": 0.99}, spread=0.05)
    assert trial.decision == EAGER and calls <= 2 * TURN * MOST_ROUNDS


def test_what_is_hopeless_is_tried_twice():
    trial, calls = decided({EAGER: 1.0, "default": 40.0})
    assert trial.decision == EAGER and calls == 2 * 2 * TURN


def test_of_several_the_fastest():
    trial, _ = decided({EAGER: 1.0, "default": 0.8, "reduce-overhead": 0.4}, ("default", "reduce-overhead"), spread=0.2)
    assert trial.decision == "reduce-overhead"
    trial, _ = decided({EAGER: 1.0, "default": 0.5, "reduce-overhead": 9.0}, ("default", "reduce-overhead"))
    assert trial.decision == "default" and len(trial.ratios["reduce-overhead"]) == 2


def test_the_first_call_of_a_turn_does_not_count():
    trial = Trial(("default",))
    place = 0
    while trial.decision is None:
        call = trial.next()
        call.took(100.0 if place % TURN == 0 else {EAGER: 1.0, "default": 0.5}[call.way])
        place += 1
    assert trial.seconds == {EAGER: 1.0, "default": 0.5}


def test_calls_that_raise_are_left_out():
    trial = Trial(("default",))
    count = 0
    while trial.decision is None:
        call = trial.next()
        count += 1
        call.took(None if count % 3 == 2 else {EAGER: 1.0, "default": 0.5}[call.way])
    assert trial.decision == "default"
    trial = Trial(("default",))
    for _ in range(200):  # nothing can be told of calls that all raise
        trial.next().took(None)
    assert trial.decision is None


def test_drift_of_the_machine_meets_all():
    trial, drift = Trial(("default",)), 1.0
    while trial.decision is None:
        call = trial.next()
        drift *= 1.02
        call.took(drift * {EAGER: 1.0, "default": 0.9}[call.way])
    assert trial.decision == "default"
