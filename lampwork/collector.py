"""`paused`: no garbage collections while something is compiled, unnoticed by other threads. `may_hide_graphs`: whether
objects that the collector does not show (`gc.freeze`) may be CUDA graphs.

Capture and compiling allocate a great many small live objects, and each full collection that they trigger walks every
object of the user's program (40 ms with torch loaded, 0.3 s with `transformers`).

The collector's switch is the whole process's: turned off here, it would be off in every thread, and a thread that turns
it off for good meanwhile would find it on again. So the switch is left alone; the threshold is raised instead, and put
back unless somebody has changed it.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lampwork import forks

#: A number of new objects that no compile reaches, and that nobody else would choose.
NEVER = 2_000_000_011

#: New objects whose walk takes a millisecond.
_MANY = 20_000

_lock = threading.RLock()
#: How many pauses each thread is in.
_pauses: dict[int, int] = {}
_before = (0, 0, 0)


@contextmanager
def paused() -> Iterator[None]:
    """No automatic collection of this process meanwhile. Several threads may be in here; the last one out ends it."""
    global _before
    thread = threading.get_ident()
    with _lock:
        if not _pauses:
            _before = gc.get_threshold()
            gc.set_threshold(NEVER, *_before[1:])
        _pauses[thread] = _pauses.get(thread, 0) + 1
    try:
        yield
    finally:
        with _lock:
            left = _pauses.pop(thread, 1) - 1
            if left:
                _pauses[thread] = left
            _end()


def _end() -> None:
    """Puts the threshold back if nobody pauses."""
    if not _pauses and gc.get_threshold()[0] == NEVER:
        if gc.get_count()[0] > _MANY and not gc.get_freeze_count():
            # The next new object would have all of them walked, as young ones: 40 ms. Nearly all of them live on. These
            # two put them into the oldest generation, and walk nothing.
            gc.freeze()
            gc.unfreeze()
        gc.set_threshold(*_before)


@forks.in_child
def _in_child() -> None:
    """Pauses of threads that a forked child does not have are over."""
    global _lock
    _lock = threading.RLock()
    own = _pauses.get(threading.get_ident(), 0)
    _pauses.clear()
    if own:
        _pauses[threading.get_ident()] = own
    _end()


def may_hide_graphs() -> bool:
    """Whether `gc.freeze` may have put a CUDA graph where the collector does not look: what was frozen before this
    package was imported, and before CUDA was started, is none."""
    return gc.get_freeze_count() > _frozen_without_graphs


def _frozen_now() -> int:
    """Objects that are frozen, if no CUDA graph can be among them: an interpreter freezes some of its own, and servers
    that fork their workers freeze all that they have imported."""
    cuda = sys.modules.get("torch.cuda")
    return gc.get_freeze_count() if cuda is None or not cuda.is_initialized() else 0


_frozen_without_graphs = _frozen_now()
