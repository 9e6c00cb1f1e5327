"""One thread that compiles while calls go on, for all functions of mode "auto" in this process.

The interpreter runs one thread at a time. So that calls are not held up for long, jobs give way to them (`turns.py`),
and a thread that waits is let in after `SWITCH_SECONDS` meanwhile, in place of Python's 5 ms.
"""

from __future__ import annotations

import atexit
import logging
import queue
import sys
import threading
from collections.abc import Callable

from lampwork import forks, turns

log = logging.getLogger("lampwork")

Job = Callable[[], None]

SWITCH_SECONDS = 5e-5
#: What the end of the process waits for a job that has begun.
LAST_JOB_SECONDS = 10.0

_jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
_thread: threading.Thread | None = None
_lock = threading.Lock()
_ending = False


def submit(job: Job) -> None:
    """`job` runs later, in the order of submission. What it raises is logged: jobs keep their own errors."""
    global _thread
    with _lock:
        if _ending:
            return
        _jobs.put(job)
        if _thread is None:
            _thread = threading.Thread(target=_work, name="lampwork-compiles", daemon=True)
            _thread.start()


def _work() -> None:
    global _thread
    while True:
        try:
            job = _jobs.get(timeout=1.0)
        except queue.Empty:
            with _lock:  # a thread that idles would be one more that every fork loses
                if _jobs.empty():
                    _thread = None
                    return
            continue
        if _ending:
            continue
        before = sys.getswitchinterval()
        sys.setswitchinterval(min(before, SWITCH_SECONDS))
        try:
            with turns.in_background():
                job()
        except BaseException:
            log.exception("compiling in the background failed")
        finally:
            if sys.getswitchinterval() == min(before, SWITCH_SECONDS):
                sys.setswitchinterval(before)
            del job  # it holds arguments of the user's


@atexit.register
def _end() -> None:
    """An interpreter that ends under a compile may crash in it: what has begun is waited for, nothing new begins."""
    global _ending
    with _lock:
        _ending = True
        thread = _thread
    if thread is not None:
        thread.join(LAST_JOB_SECONDS)


@forks.in_child
def _in_child() -> None:
    """Its parent compiles what was asked for; the child asks again."""
    global _jobs, _thread, _lock
    _jobs, _thread, _lock = queue.SimpleQueue(), None, threading.Lock()
