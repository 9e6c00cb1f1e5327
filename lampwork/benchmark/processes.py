"""Processes that measure: made of one that has torch loaded, since GPU time is dear; ended with all they started."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from lampwork.benchmark.record import ROOT, Found

TIMED_OUT = "was stopped, out of time"


def environment() -> dict[str, str]:
    """This process's environment, with the same modules to be found."""
    paths = [str(ROOT), os.getcwd(), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "TRANSFORMERS_VERBOSITY": "error"}


class ForkServer:
    """A process with torch and some classes of transformers loaded, which makes a process for each measurement."""

    def __init__(self, classes: tuple[str, ...], root: Path) -> None:
        self.environment = environment()
        self.log = root / f"server-{len(classes)}.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", str(Path(__file__).with_name("fork_server.py")), *classes],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # An import that asks whether there is a GPU is answered without opening it.
                env={**self.environment, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"},
                text=True,
                start_new_session=True,
            )
        self.answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put("")

    def _answer(self, deadline: float) -> Found | None:
        """The next answer, or None at the deadline. Raises RuntimeError if the server has died."""
        try:
            line = self.answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return None
        if not line:
            raise RuntimeError(f"the process that starts measurements died: {self.log.read_text()[-2000:]}")
        return json.loads(line)

    def wait_ready(self) -> None:
        ready = self._answer(time.monotonic() + 180)
        if ready is None:
            raise RuntimeError("importing torch and transformers took more than 180 s")
        if not ready["forks"]:
            print("an import has opened the GPU: each process imports torch anew", file=sys.stderr)

    def run(self, script: str, argument: str, environment: dict[str, str], log: Path, deadline: float) -> str:
        """Run a script in a process of its own until it ends or the deadline comes; how it ended, in words."""
        assert self.process.stdin is not None
        order = {"script": script, "argument": argument, "environment": environment, "log": str(log)}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        started = self._answer(time.monotonic() + 60)
        assert started is not None, "no process was started within a minute"
        pid = started["pid"]
        try:
            ended = self._answer(deadline)
            if ended is None:
                end(pid)
                self._answer(time.monotonic() + 60)
                return TIMED_OUT
        finally:
            end(pid)
        return how(ended["status"])

    def close(self) -> None:
        end(self.process.pid)
        self.process.wait()


def how(status: int) -> str:
    """How a process ended, in words; `status` is minus a signal, or what it ended with."""
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


def end(pid: int) -> None:
    """Stop a process that leads a group, and the compile processes that it started, if any of them still run."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
