"""Compiled functions under load from many threads: right values, no deadlock, no lost entry, no trace in other threads."""

from __future__ import annotations

import pytest

from tests.threads.load import Load, lost_entries


def check(report):
    assert not report.problems, "\n".join(report.problems[:3])
    assert min(report.calls.values()) > 0 and len(report.calls) == 4, report.calls


def test_eight_threads_four_functions():
    report = Load().run(seconds=5)
    check(report)
    assert lost_entries(report) == []


def test_resets_meanwhile():
    check(Load(resets=True, seed=1).run(seconds=3))


@pytest.mark.slow
def test_eight_threads_four_functions_for_a_minute():
    report = Load(seed=2).run(seconds=60)
    check(report)
    assert lost_entries(report) == []


@pytest.mark.slow
def test_the_disk_cache_is_read_and_written_meanwhile():
    check(Load(resets=True, options={"cache": True}, seed=3).run(seconds=30))
