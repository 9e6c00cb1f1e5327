"""Locks from outside that the program takes and gives back: whoever serves a call holds them from before its guards are
checked until its effects are applied (`runtime/locks.py`), for what the program reads under a lock is read by guards.

That is longer than eager holds them. So nothing of anybody else's may run meanwhile: where the region ends at a break
or with an exception, capture runs again, and the program breaks where it takes the lock (`capture.py`). And a lock that
is taken while others wait to be given back at the end has to be one that eager takes while it holds these.

A lock that the program makes is nobody else's: it is taken natively. One that is free leaves the region as a new one.
"""

from __future__ import annotations

import _thread
from typing import Any

from lampwork.capture.machine import Answer
from lampwork.capture.outside.overlay import Break
from lampwork.ir.source import Source

_KINDS = (_thread.LockType, _thread.RLock)


class Locks:
    """What the program has taken so far, in its order; `held`: how often it holds each of them now, by id. `made`: its
    own locks, which nobody else knows."""

    def __init__(self) -> None:
        self.made: dict[int, Any] = {}
        self.taken: dict[int, tuple[Any, Source]] = {}
        self.held: dict[int, int] = {}

    @property
    def sources(self) -> tuple[Source, ...]:
        return tuple(source for _, source in self.taken.values())


def _taking(take: Any) -> Any:
    def answer(world: Any, lock: Any, *args: Any, **kwargs: Any) -> bool:
        locks: Locks = world.locks
        origin = world.loader.origin(lock)
        if origin is None and id(lock) in locks.made:
            return _take_own(lock, take, args, kwargs)
        if "locks" in world.natively:
            raise Break("native-call", f"a lock is taken, {world.natively['locks']}")
        if origin is None or args or kwargs:
            raise Break("native-call", "a lock is taken in a way that no compiled program does")
        number = locks.held.get(id(lock), 0)
        if number and type(lock) is _thread.LockType:
            raise Break("native-call", "a lock is taken that the program holds: that waits forever")
        if id(lock) not in locks.taken:
            if len(locks.held) < len(locks.taken):
                raise Break("native-call", "a second lock is taken after the first one")
            locks.taken[id(lock)] = lock, origin.source
        locks.held[id(lock)] = number + 1
        return True

    return answer


def _take_own(lock: Any, take: Any, args: tuple, kwargs: dict[str, Any]) -> bool:
    """Takes a lock of the program's own, natively: nobody else holds it."""
    if type(lock) is _thread.LockType and lock.locked():
        raise Break("native-call", "a lock is taken that the program holds: that waits forever")
    return take(lock, *args, **kwargs)


def _making(make: Any) -> Any:
    def answer(world: Any, *args: Any, **kwargs: Any) -> Any:
        lock = make(*args, **kwargs)
        world.locks.made[id(lock)] = lock
        return lock

    return answer


def _is_taken(world: Any, lock: Any) -> bool:
    if id(lock) not in world.locks.made:
        raise Break("native-call", "whether somebody has a lock is asked")
    return lock.locked()


def _giving(give: Any) -> Any:
    def answer(world: Any, lock: Any, *args: Any) -> None:
        if id(lock) in world.locks.made:
            give(lock, *args)  # raises where it is not held
            return
        held = world.locks.held
        if id(lock) not in held:
            raise Break("native-call", "a lock is given back that the program did not take")
        held[id(lock)] -= 1
        if not held[id(lock)]:
            del held[id(lock)]

    return answer


NATIVES: dict[Any, Answer] = {
    **{make: _making(make) for make in (_thread.allocate_lock, _thread.RLock)},
    _thread.LockType.locked: _is_taken,
    **{take: _taking(take) for kind in _KINDS for take in (kind.__enter__, kind.acquire)},
    **{give: _giving(give) for kind in _KINDS for give in (kind.__exit__, kind.release)},
}
