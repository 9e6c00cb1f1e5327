"""A lock that the program makes itself broke the graph."""

from __future__ import annotations

import queue
import threading

import pytest
import torch

import lampwork


class Counter:
    def __init__(self):
        self.lock = threading.RLock()
        self.count = 0

    def add(self, n):
        with self.lock:
            if n:
                with self.lock:
                    self.count += n
            return self.count


def taken_and_given_back(x):
    lock = threading.Lock()
    seen = [lock.locked()]
    with lock:
        seen.append(lock.locked())
    return x + 1, seen, lock.acquire(), lock.locked(), lock.release()


def in_an_object(x):
    counter = Counter()
    return x * counter.add(2), counter.add(0), counter.add(3)


def given_back_by_an_error(x):
    lock = threading.Lock()
    try:
        with lock:
            raise KeyError("x")
    except KeyError:
        return x, lock.locked()


def not_held(x):
    lock = threading.Lock()
    try:
        lock.release()
    except RuntimeError as error:
        return x, str(error)


@pytest.mark.parametrize("program", [taken_and_given_back, in_an_object, given_back_by_an_error, not_held])
def test_one_graph_as_eager(program):
    compiled = lampwork.compile(program, fullgraph=True, options={"cache": False})
    for _ in range(2):
        assert str(compiled(torch.ones(2))) == str(program(torch.ones(2)))


def test_one_that_leaves_is_new_on_each_call():
    def program(x, held):
        counter = Counter()
        held.append(counter)
        return x * counter.add(2), counter.lock

    compiled = lampwork.compile(program, fullgraph=True, options={"cache": False})
    held: list = []
    for _ in range(3):
        _, lock = compiled(torch.ones(2), held)
        assert lock is held[-1].lock and not lock._is_owned() and lock.acquire(blocking=False)
        lock.release()
    assert len({id(each.lock) for each in held}) == 3


@torch.compiler.disable
def outside(lock):
    return lock.locked()


def test_held_over_a_break():
    def program(x):
        lock = threading.Lock()
        with lock:
            held = outside(lock)
        return x + 1, held, outside(lock)

    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        assert str(compiled(torch.ones(2))) == str(program(torch.ones(2)))


def test_held_when_it_leaves():
    def program(x):
        lock = threading.Lock()
        lock.acquire()
        return x + 1, lock

    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        assert compiled(torch.ones(2))[1].locked()


def test_a_queue():
    def program(x):
        waiting = queue.SimpleQueue()
        waiting.put(x * 2)
        return waiting.get() + 1

    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(2)), program(torch.ones(2)))
