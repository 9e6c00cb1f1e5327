"""Programs that take locks: in the graph where all of it lies between, held as long as the call lasts."""

from __future__ import annotations

import sys
import threading

import pytest
import torch

import lampwork


class Counted:
    """What threads share."""

    def __init__(self, kind):
        self.lock = kind()
        self.number = 0


KINDS = [threading.Lock, threading.RLock]


def compiled(function, **options):
    lampwork.reset()
    return lampwork.compile(function, options={"cache": False}, **options)


@pytest.mark.parametrize("kind", KINDS, ids=["lock", "rlock"])
def test_one_graph(kind):
    shared = Counted(kind)

    def program(x):
        with shared.lock:
            shared.number = 7
        shared.lock.acquire()
        try:
            y = x * shared.number
        finally:
            shared.lock.release()
        return y + 1

    run = compiled(program, fullgraph=True)
    for _ in range(3):
        assert run(torch.ones(2)).tolist() == [8, 8]
    assert lampwork.stats(run)["captures"] <= 2
    assert shared.lock.acquire(blocking=False)


@pytest.mark.parametrize("kind", KINDS, ids=["lock", "rlock"])
def test_no_count_is_lost(kind):
    """The number is read by a guard: it must not be read before another thread's effects, and written behind them."""
    shared = Counted(kind)

    def program(x):
        with shared.lock:
            shared.number = shared.number + 1
        return x * 2

    run = compiled(program, dynamic=True)
    for _ in range(3):
        run(torch.ones(2))
    shared.number = 0
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=lambda: [run(torch.ones(2)) for _ in range(200)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(before)
    assert shared.number == 800
    assert not lampwork.stats(run)["breaks"]


def test_a_call_waits_for_the_lock():
    shared = Counted(threading.Lock)
    lock = shared.lock

    def program(x):
        with shared.lock:
            shared.number = 3
        return x + shared.number

    run = compiled(program, fullgraph=True)
    run(torch.ones(2))
    lock.acquire()
    results = []
    thread = threading.Thread(target=lambda: results.append(run(torch.ones(2))))
    shared.number = 0
    thread.start()
    thread.join(0.3)
    assert thread.is_alive() and shared.number == 0  # it waits, as eager does
    lock.release()
    thread.join(60)
    assert results[0].tolist() == [4, 4] and shared.number == 3 and not lock.locked()


def test_other_threads_go_on_where_the_graph_breaks():
    """The call that breaks needs the lock: it is given back before, as in eager."""
    shared = Counted(threading.Lock)

    def other(x):
        thread = threading.Thread(target=shared.lock.acquire)
        thread.start()
        thread.join(30)
        assert not thread.is_alive()
        shared.lock.release()
        return x

    @torch.compiler.disable
    def native(x):
        return other(x)

    def program(x):
        with shared.lock:
            shared.number += 1
        y = native(x * 2)
        return y + 1

    run = compiled(program)
    for number in range(3):
        assert run(torch.ones(2)).tolist() == [3, 3]
        assert shared.number == number + 1
    assert any("a lock is taken, and then" in each.diagnostic.reason for each in lampwork.stats(run)["breaks"])


def test_exceptions_and_kept_locks():
    shared = Counted(threading.Lock)

    def raising(x):
        with shared.lock:
            shared.number += 1
            raise ValueError("told")

    run = compiled(raising)
    for number in range(3):
        with pytest.raises(ValueError, match="told"):
            run(torch.ones(2))
        assert shared.number == number + 1 and not shared.lock.locked()

    def keeping(x):
        shared.lock.acquire()
        return x * 2

    run = compiled(keeping)
    for _ in range(3):
        assert run(torch.ones(2)).tolist() == [2, 2]
        assert shared.lock.locked()
        shared.lock.release()


def test_locks_in_another_order_than_eager_takes_them():
    """Both at once, where eager takes one behind the other, could wait for a thread that takes them the other way."""
    first, second = threading.Lock(), threading.Lock()

    def behind(x):
        with first:
            y = x * 2
        with second:
            return y + 1

    run = compiled(behind)
    assert run(torch.ones(2)).tolist() == [3, 3]
    assert lampwork.stats(run)["breaks"]

    def inside(x):
        with first:
            with second:
                return x * 2 + 1

    run = compiled(inside, fullgraph=True)
    assert run(torch.ones(2)).tolist() == [3, 3]
    assert not first.locked() and not second.locked()
