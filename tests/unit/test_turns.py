"""A compile in the background gives way to calls, for a while."""

from __future__ import annotations

import threading
import time

from lampwork import turns


def spin(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def waits(work, before=lambda: None):
    """Seconds that `give_way` took in a thread that gives way, after `before` and `work`."""
    found = []

    def run():
        with turns.in_background():
            before()
            turns.give_way()
            work()
            started = time.monotonic()
            turns.give_way()
            found.append(time.monotonic() - started)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def test_nobody_waits_where_no_call_is_made():
    assert waits(lambda: spin(2 * turns.SHARE)) < turns.PATIENCE / 2


def test_a_share_of_each_call_is_taken(monkeypatch):
    monkeypatch.setattr(turns, "PATIENCE", 0.5)
    turns.begin()
    try:
        assert waits(lambda: None) < 0.25
        assert waits(lambda: spin(2 * turns.SHARE)) >= 0.5, "the call goes on: it waits as long as it may"
    finally:
        turns.end()


def test_the_end_of_the_call_ends_the_wait(monkeypatch):
    monkeypatch.setattr(turns, "PATIENCE", 60.0)
    turns.begin()
    ending = threading.Timer(0.2, turns.end)
    ending.start()
    assert waits(lambda: spin(2 * turns.SHARE)) < 30
    ending.join()


def test_who_calls_does_not_wait():
    turns.begin()
    try:
        started = time.monotonic()
        spin(2 * turns.SHARE)
        turns.give_way()
        assert time.monotonic() - started < turns.PATIENCE
    finally:
        turns.end()
