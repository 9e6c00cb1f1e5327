"""Interleaved measurement tells fast from slow, whatever happens between rounds."""

from __future__ import annotations

import gc
import time
import weakref

import pytest

from lampwork.benchmark.measure import geometric_mean, measure_interleaved, summarise


def test_slower_functions_measure_slower():
    timings = measure_interleaved(
        {"fast": lambda: time.sleep(0.001), "slow": lambda: time.sleep(0.004)}, seconds=0.1, min_rounds=5
    )
    assert 0.9 < timings["fast"].median_ms < timings["slow"].median_ms
    assert list(timings) == ["fast", "slow"]
    assert timings["slow"].rounds >= 5


def test_rounds_take_turns():
    calls = []
    measure_interleaved(
        {name: lambda name=name: calls.append(name) for name in "abc"},
        seconds=0.0,
        min_rounds=20,
        max_rounds=20,
        calls_per_sample=1,
        warmup_rounds=0,
    )
    rounds = [tuple(calls[start : start + 3]) for start in range(0, 60, 3)]
    assert all(sorted(turn) == ["a", "b", "c"] for turn in rounds)
    assert len(set(rounds)) > 1  # not always the same neighbour


class Output:
    pass


@pytest.mark.parametrize(("keep", "alive"), [(0, 0), (3, 2)])
def test_outputs_die_at_once_or_stay_alive(keep, alive):
    born, seen = [], []

    def call():
        seen.append(sum(reference() is not None for reference in born))
        output = Output()
        born.append(weakref.ref(output))
        return output

    measure_interleaved(
        {"f": call}, seconds=0, min_rounds=10, max_rounds=10, calls_per_sample=1, warmup_rounds=0, keep_outputs=keep
    )
    assert seen[-1] >= alive if keep else max(seen) == 0


def test_many_calls_count_as_one_each():
    calls = []
    timing = measure_interleaved({"f": lambda: calls.append(1)}, seconds=0, min_rounds=3, calls_per_sample=100)["f"]
    assert timing.rounds == 3 and timing.median_ms < 0.05
    assert len(calls) == 100 * 3 + 2


def test_collection_is_restored_after_an_error():
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        measure_interleaved({"f": lambda: 1 / 0}, seconds=0)
    assert gc.isenabled()


def test_bad_rounds_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        measure_interleaved({"f": int}, min_rounds=0)


def test_summary_and_mean():
    timing = summarise([1.0, 2.0, 3.0, 4.0, 100.0])
    assert (timing.lower_ms, timing.median_ms, timing.upper_ms, timing.fastest_ms) == (2.0, 3.0, 4.0, 1.0)
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
