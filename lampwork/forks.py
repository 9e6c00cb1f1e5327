"""`compiling`: a process is not forked while another thread compiles. `in_child`: what a forked child puts right first.

A child has one thread. What the others held when the process was forked (locks, a module half imported, LLVM half
way through a function) is held for good in the child, which waits for it forever. So `os.fork` waits until no other
thread compiles, and none begins before it is done. A compile may itself wait for the thread that forks (for a lock of
the program's): a fork waits for no more than `LONGEST_WAIT` seconds, and the child has new locks in any case.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

#: Longer than almost every compile; a fork that has waited for so long is done anyhow.
LONGEST_WAIT = 60.0

_changed = threading.Condition()
_forking = 0
#: How many compiles, one inside of the other, each thread is in.
_compiles: dict[int, int] = {}
_in_child: list[Callable[[], object]] = []
_held: list[Any] = []


@contextmanager
def compiling() -> Iterator[None]:
    """No fork by another thread meanwhile."""
    thread = threading.get_ident()
    with _changed:
        while _forking and thread not in _compiles:
            _changed.wait()
        _compiles[thread] = _compiles.get(thread, 0) + 1
    try:
        yield
    finally:
        with _changed:
            left = _compiles.get(thread, 1) - 1
            if left:
                _compiles[thread] = left
            else:
                _compiles.pop(thread, None)
                _changed.notify_all()


def in_child(repair: Callable[[], object]) -> Callable[[], object]:
    """`repair`, which every forked child calls before anything else of it runs. It gives a module new locks."""
    _in_child.append(repair)
    return repair


def _before() -> None:
    global _forking
    thread = threading.get_ident()
    _changed.acquire()
    _forking += 1
    until = time.monotonic() + LONGEST_WAIT
    while any(each != thread for each in _compiles) and time.monotonic() < until:
        _changed.wait(until - time.monotonic())
    llvm = sys.modules.get("llvmlite.binding.ffi")
    if llvm is not None:  # programs beside this package may use it, too
        lock = llvm.lib._lock._lock
        if lock.acquire(timeout=max(until - time.monotonic(), 0)):
            _held.append(lock)


def _after_in_parent() -> None:
    global _forking
    while _held:
        _held.pop().release()
    _forking -= 1
    _changed.notify_all()
    _changed.release()


def _after_in_child() -> None:
    global _forking, _changed
    while _held:
        _held.pop().release()
    thread = threading.get_ident()
    depth = _compiles.get(thread, 0)
    _compiles.clear()
    if depth:
        _compiles[thread] = depth
    _changed, _forking = threading.Condition(), 0
    for repair in _in_child:
        repair()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
