"""Processes that compile kernels side by side: this end of the socket whose other end is `worker.py`.

Start them early, with the capture of a program: they are ready after 0.5 to 0.8 s, and then 24 kernels take 0.2 s on 12
of them, where threads of this process, which share the interpreter lock, took 1 s. They end with this process, and when
nothing was compiled for two minutes.
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from lampwork import forks
from lampwork.codegen.triton import worker


class PoolFailed(Exception):
    """The processes could not be started, or died. `started`: whether they were ever ready."""

    def __init__(self, reason: str, started: bool) -> None:
        super().__init__(reason)
        self.started = started


class Pool:
    """`workers` processes that compile for `arch`. Raises `PoolFailed` where processes cannot be started."""

    def __init__(self, workers: int, arch: str) -> None:
        if not sys.executable:
            raise PoolFailed("the path of the Python interpreter is not known", False)
        self.owner = os.getpid()
        self.ready = False
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        # The interpreter's own start-up files are skipped (-S): what they add to the path is on ours.
        command = [sys.executable, "-S", "-P", worker.__file__, str(other.fileno()), str(workers), arch]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
        environment.pop("TRITON_INTERPRET", None)  # no machine code comes of kernels that are interpreted
        try:
            self._process = subprocess.Popen(
                command, env=environment, pass_fds=[other.fileno()], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._socket.close()
            raise PoolFailed(f"{error}", False) from error
        finally:
            other.close()

    def close(self) -> None:
        """Ends the processes."""
        self._socket.close()
        if os.getpid() == self.owner:
            self._process.terminate()
            self._process.wait()

    def compile(self, jobs: Mapping[int, bytes]) -> dict[int, dict[str, object] | str]:
        """The answer or the error text for each job (JSON, up to `worker.MESSAGE_BYTES`). Raises `PoolFailed`."""
        waiting = [(number, job) for number, job in jobs.items()]
        answers: dict[int, dict[str, object] | str] = {}
        poll = select.poll()
        while len(answers) < len(jobs):
            poll.register(self._socket, select.POLLIN | (select.POLLOUT if waiting else 0))
            ((_, events),) = poll.poll()
            try:
                if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
                    self._receive(jobs, answers)
                elif waiting:
                    self._socket.send(waiting[-1][1])
                    waiting.pop()
            except BlockingIOError:
                pass
            except OSError as error:
                raise PoolFailed(f"the compiler processes are gone: {error}", self.ready) from error
        return answers

    def _receive(self, wanted: Mapping[int, bytes], answers: dict[int, dict[str, object] | str]) -> None:
        message = self._socket.recv(worker.MESSAGE_BYTES)
        if not message:
            raise PoolFailed("the compiler processes ended", self.ready)
        number, path, error = json.loads(message)
        if number == worker.READY:
            self.ready = True
            return
        answer: dict[str, object] | str = error
        if path:
            with open(path, "rb") as file:
                answer = worker.from_bytes(file.read())
            os.unlink(path)
        if number in wanted:  # not so where a call was interrupted before it had all its answers
            answers[number] = answer


_lock = threading.Lock()
_numbers = itertools.count()
_pool: Pool | None = None
_failed = False


@forks.in_child
def _in_child() -> None:
    global _lock
    _lock = threading.Lock()


def start(workers: int, arch: str) -> None:
    """Have the processes started, once. Where that fails, `compile_all` says so."""
    global _pool, _failed
    with _lock:
        if _failed or workers < 1 or (_pool is not None and _pool.owner == os.getpid()):
            return
        try:
            _pool = Pool(workers, arch)
        except PoolFailed:
            _failed = True


def compile_all(jobs: Sequence[dict[str, Any]], workers: int) -> list[dict[str, object] | str] | None:
    """The answer or the error text for each job; None where the processes cannot do it, and this one has to.

    Processes that die on the way are started once more; a job they die of again is an error.
    """
    global _failed
    numbers = [next(_numbers) for _ in jobs]
    messages = {number: json.dumps((number, job)).encode() for number, job in zip(numbers, jobs)}
    if workers < 1 or any(len(message) > worker.MESSAGE_BYTES for message in messages.values()):
        return None
    for _ in range(2):
        start(workers, jobs[0]["arch"])
        with _lock:
            if _failed or _pool is None:
                return None
            try:
                answers = _pool.compile(messages)
                return [answers[number] for number in numbers]
            except PoolFailed as failure:
                stop()
                if not failure.started:
                    _failed = True
                    return None
    return ["the compiler process died"] * len(jobs)


def stop() -> None:
    """End the processes, if there are any."""
    global _pool
    if _pool is not None:
        _pool.close()
        _pool = None


atexit.register(stop)
