"""Processes that are killed while they compile and store, beside others that go on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.faults.cases import case
from tests.faults.support import check, compiled, counted_warnings, make

_WORKER = """
import sys
from tests.faults.support import check, compiled, make
print("ready", flush=True)
for number in range(int(sys.argv[1]), int(sys.argv[1]) + 200):
    check(compiled(make(number % 12), stored=True), make(number % 12))
"""


def _worker(number: int) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", _WORKER, str(number)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@case(seconds=240, times=2)
def killed_while_they_store(seed: int) -> None:
    """Workers die by SIGKILL at any moment; this process reads and writes the same folder."""
    for turn in range(5):
        workers = [_worker(turn * 2 + each) for each in range(2)]
        time.sleep(random.random() * 0.6)
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
            worker.wait()
        with counted_warnings():
            for number in range(12):
                check(compiled(make(number), stored=True), make(number))
    left = [each for each in Path(os.environ["LAMPWORK_CACHE_DIR"]).rglob("*") if each.is_file()]
    assert len(left) < 60, left


@case(seconds=180)
def stopped_while_they_store(seed: int) -> None:
    """A worker stands still in the middle of its work (SIGSTOP): nobody waits for it."""
    for _ in range(3):
        worker = _worker(0)
        time.sleep(random.random() * 0.5)
        worker.send_signal(signal.SIGSTOP)
        start = time.monotonic()
        with counted_warnings():
            for number in range(6):
                check(compiled(make(number), stored=True), make(number))
        assert time.monotonic() - start < 40
        worker.kill()
        worker.send_signal(signal.SIGCONT)
        worker.wait()
