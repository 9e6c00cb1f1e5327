"""`give_way`: what compiles in the background lets the program's calls go first. `calling`: a call is being made.

Python runs one thread at a time, so a compile beside a call makes it longer. Of each call it takes `SHARE` seconds;
then it waits for the call's end, for no longer than `PATIENCE`, as a call may last for hours. Stages ask here often:
before each function that capture enters, each operator, each kernel.

`uninterrupted`: a capture that is not to give way, where the program changes from call to call what it reads.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from lampwork import forks

SHARE = 0.012
PATIENCE = 0.25

_changed = threading.Condition()
_calls = 0
#: How many calls have begun so far, and for which of them the compile has spent how much.
_begun = 0
_compiles = 0  # the thread that gives way; 0: none
_since = (0, 0.0)


@contextmanager
def in_background() -> Iterator[None]:
    """This thread gives way, as long as the block."""
    global _compiles
    _compiles = threading.get_ident()
    try:
        yield
    finally:
        _compiles = 0


#: Long enough for any capture: Python takes the turn from no thread that has it for less.
_NEVER_SECONDS = 60.0
_in_one_piece = _uninterrupted = False


@contextmanager
def captured_in_one_piece(is_so: bool) -> Iterator[None]:
    """Whether `uninterrupted` keeps calls out, for the length of the block."""
    global _in_one_piece
    _in_one_piece = is_so
    try:
        yield
    finally:
        _in_one_piece = False


@contextmanager
def uninterrupted() -> Iterator[None]:
    """What is captured in the block sees one state of the program, as far as Python decides which thread runs: a thread
    that waits for a file, or for a lock, lets others in."""
    global _uninterrupted
    if not (_in_one_piece and _compiles == threading.get_ident()):
        yield
        return
    before = sys.getswitchinterval()
    _uninterrupted = True
    sys.setswitchinterval(_NEVER_SECONDS)
    try:
        yield
    finally:
        _uninterrupted = False
        if sys.getswitchinterval() == _NEVER_SECONDS:
            sys.setswitchinterval(before)


def begin() -> None:
    """A call begins; `end` follows."""
    global _calls, _begun
    with _changed:
        _calls += 1
        _begun += 1


def end() -> None:
    global _calls
    with _changed:
        _calls -= 1
        _changed.notify_all()


def give_way() -> None:
    """Waits where a call is being made that this thread has held up for long enough."""
    global _since
    if not _compiles or _compiles != threading.get_ident() or not _calls or _uninterrupted:
        return
    now = time.thread_time()
    call, spent = _since
    if call != _begun:
        _since = (_begun, now)
    elif now - spent > SHARE:
        with _changed:
            begun = _begun
            _changed.wait_for(lambda: not _calls or _begun != begun, PATIENCE)
        _since = (_begun, time.thread_time())


@forks.in_child
def _in_child() -> None:
    global _changed, _calls, _compiles
    _changed, _calls, _compiles = threading.Condition(), 0, 0
