"""Processes that start at once agree on who compiles: one does, the others wait for what it stores.

    CACHE_DIR/locks/KEY-CALL.lock      locked by the process that compiles calls of this kind for KEY

The lock is the kernel's (`flock`): whoever holds it loses it by dying, however it dies, and no clock has a say. Where
the shared place is a folder, there is a second lock in it, always taken after the local one. What the holder leaves in
the file before it lets go is one word: that an entry was stored, for which the others look; or that none was, as it
names what other processes cannot find, so that they compile at once and not one after the other.

Nothing here can hold a process up for longer than `LAMPWORK_CACHE_WAIT` seconds, once: who has waited in vain compiles,
and waits for nobody from then on. Without locks (a file system that has none, a folder that cannot be written)
everybody compiles.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from lampwork import forks, signals
from lampwork.config import cache_dir, cache_url, environment
from lampwork.files import safe_folder
from lampwork.runtime.cache import layout

#: Between two looks at a lock that another process holds.
LOOK_SECONDS = 0.02
STORED, NOT_STORED = b"stored", b"none"
#: Parts of a call that are looked at: calls that differ beyond them wait for each other once.
PARTS = 1000

Note = Callable[[str], None]

_gave_up = False
#: Locks that this process has open; a forked child closes its copies.
_open: set[Lock] = set()
_thread = threading.local()


class Turn:
    """A turn to compile. `has_waited`: another process had it before, and may have stored what is needed. `stored`: is
    to be set before the turn ends, if an entry was."""

    def __init__(self) -> None:
        self.has_waited = False
        self.stored = False


@contextmanager
def turn(key: str, args: tuple, kwargs: dict, note: Note, count: Callable[[str], None]) -> Iterator[Turn]:
    """Waits until no other process compiles such a call, or has done so, or has died, or for long enough.

    Raises what a handler of a signal raises that comes meanwhile (`HandlerRaised`).
    """
    made = Turn()
    if _gave_up or getattr(_thread, "has_turn", False):  # who holds one lock never waits for another
        yield made
        return
    _thread.has_turn = True
    try:
        with ExitStack() as locks:
            _take_locks(f"{key}-{kind_of_call(args, kwargs)}.lock", made, locks, note, count)
            yield made
    finally:
        _thread.has_turn = False


def _take_locks(name: str, made: Turn, locks: ExitStack, note: Note, count: Callable[[str], None]) -> None:
    until = time.monotonic() + environment.cache_wait
    for place in (_local, _shared):
        lock = None
        try:
            lock = place(name)
            taken = lock is not None and _wait(lock, until, made, note, count)
        except OSError as error:
            note(f"others are not waited for: {error}")
            taken = False
        except BaseException:
            if lock is not None:
                lock.close()
            raise
        if lock is None:
            continue
        if not taken:
            lock.close()
            return
        locks.callback(_let_go, lock, made)


def _wait(lock: Lock, until: float, made: Turn, note: Note, count: Callable[[str], None]) -> bool:
    """Whether this process has the lock; if not, it does as well without."""
    global _gave_up
    if lock.take():
        return True
    made.has_waited = True
    count("waited")
    start = time.monotonic()
    while time.monotonic() < until:
        signals.run_pending()
        time.sleep(LOOK_SECONDS)
        word = lock.word()
        if word in (STORED, NOT_STORED):
            what = "which stored it" if word == STORED else "which could not store it"
            note(f"waited {time.monotonic() - start:.2f} s for a process that compiled the same, {what}")
            return False
        if lock.take():
            note(f"waited {time.monotonic() - start:.2f} s for a process that ended before it had compiled the same")
            return True
    _gave_up = True
    note(f"waited {environment.cache_wait:g} s for a process that compiles the same; nobody is waited for from now on")
    return False


def _let_go(lock: Lock, made: Turn) -> None:
    lock.let_go(made.stored)


class Lock:
    """An open lock file. `unlink`: removes it by its name, if that is still this file."""

    def __init__(self, descriptor: int, unlink: Callable[[int], None]) -> None:
        self.descriptor = descriptor
        self._unlink = unlink
        _open.add(self)

    def take(self) -> bool:
        """Whether the lock is this process's now. Raises OSError where the file system has no locks."""
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        os.ftruncate(self.descriptor, 0)
        return True

    def word(self) -> bytes:
        """What the last holder has left."""
        return os.pread(self.descriptor, 16, 0)

    def let_go(self, stored: bool) -> None:
        """Ends the turn. The word is for those who wait, the name for nobody."""
        if self not in _open:
            return  # in a forked child: the turn is its parent's
        with suppress(OSError):
            os.pwrite(self.descriptor, STORED if stored else NOT_STORED, 0)
            self._unlink(self.descriptor)
        with suppress(OSError):
            fcntl.flock(self.descriptor, fcntl.LOCK_UN)  # also for copies of the descriptor in children
        self.close()

    def close(self) -> None:
        """Closes the file, which gives the lock back if this process has it."""
        if self in _open:
            _open.discard(self)
            os.close(self.descriptor)


_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def _local(name: str) -> Lock | None:
    folder = Path(cache_dir()) / layout.LOCKS
    with safe_folder(folder, create=True) as opened:
        descriptor = _plain(os.open(name, _FLAGS, 0o600, dir_fd=opened))

    def unlink(descriptor: int) -> None:
        with safe_folder(folder) as opened:
            if os.stat(name, dir_fd=opened, follow_symlinks=False).st_ino == os.fstat(descriptor).st_ino:
                os.unlink(name, dir_fd=opened)

    return Lock(descriptor, unlink)


def _shared(name: str) -> Lock | None:
    if not cache_url():
        return None
    from lampwork.runtime.cache import shared

    place = shared.folder()
    if place is None:
        return None
    path = os.path.join(place.folder(layout.LOCKS), name)
    descriptor = _plain(os.open(path, _FLAGS, 0o666))

    def unlink(descriptor: int) -> None:
        if os.stat(path, follow_symlinks=False).st_ino == os.fstat(descriptor).st_ino:
            os.unlink(path)

    return Lock(descriptor, unlink)


def _plain(descriptor: int) -> int:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("the lock is no plain file")
    return descriptor


@forks.in_child
def _in_child() -> None:
    global _thread
    for lock in _open:
        with suppress(OSError):
            os.close(lock.descriptor)
    _open.clear()
    _thread = threading.local()


# What tells calls apart ----------------------------------------------------------------------------------------------


def kind_of_call(args: tuple, kwargs: dict) -> str:
    """A digest of what entries mostly differ by: types, sizes, strides, devices, numbers and grad mode. Runs no code of
    the program's. Calls of one kind may need two entries: then the second process compiles after the first."""
    parts: list[str] = [f"{torch.is_grad_enabled()} {torch.is_inference_mode_enabled()}"]
    pending: list[Any] = [args, kwargs]
    while pending and len(parts) < PARTS:
        value = pending.pop()
        kind = type(value)
        if kind in (tuple, list):
            parts.append(f"{kind.__name__} {len(value)}")
            pending += value
        elif kind is dict:
            parts.append(f"dict {len(value)}")
            pending += [each for pair in value.items() for each in pair]
        elif kind is torch.Tensor or kind is torch.nn.Parameter:
            parts.append(_tensor(value))
        elif kind is str or kind is bytes:
            parts.append(f"{kind.__name__} {len(value)} {value[:100]!r}")
        elif kind is int:
            parts.append(f"int {hash(value)}")  # some are too long to be written
        elif kind in (float, bool, type(None), torch.dtype, torch.device):
            parts.append(repr(value))
        else:
            parts.append(f"{kind.__module__}.{kind.__qualname__}")
    return hashlib.sha256("\n".join(parts).encode(errors="surrogatepass")).hexdigest()[:16]


def _tensor(value: torch.Tensor) -> str:
    told = f"{value.dtype} {value.device} {value.layout} {value.requires_grad}"
    try:
        return f"{told} {tuple(value.shape)} {value.stride()}"
    except RuntimeError:  # nested and sparse tensors have no strides, or no shape
        return told
