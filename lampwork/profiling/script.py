"""`lampwork profile train.py`: some steps of a script of the user's are timed, and some are looked into."""

from __future__ import annotations

import contextlib
import runpy
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from lampwork.errors import OptionError
from lampwork.profiling.advice import Advice, waiting_advice
from lampwork.profiling.machine import machine
from lampwork.profiling.operators import Recording, least
from lampwork.profiling.parts import parts_of
from lampwork.profiling.profile import Profile
from lampwork.verdict.assess import busy
from lampwork.verdict.script import Enough, as_main, stepping

#: Steps that are not looked at, and steps whose operators are.
WARM, RECORDED = 2, 3


class Steps:
    """First some steps warm up, then `plain` are timed, then the operators of some are recorded."""

    def __init__(self, plain: int) -> None:
        self.over = False
        self.ahead = 0
        self.done = 0
        self.times: list[float] = []
        self.waits: list[float] = []
        self.rounds: list[Recording] = []
        self._plain = plain
        self._waited = 0.0
        self._started: float | None = None
        self._recording: Recording | None = None

    def wait(self, seconds: float) -> None:
        self._waited += seconds

    def begin(self) -> None:
        self._finish()
        if self.done >= WARM + self._plain + RECORDED:
            self.over = True
            return
        if self.done >= WARM + self._plain:
            self._recording = Recording(on_gpu(), lines=not self.rounds)
            self._recording.__enter__()
        self._waited, self._started = 0.0, _now()

    def _finish(self) -> None:
        if self._started is None:
            return
        seconds = _now() - self._started
        if WARM <= self.done < WARM + self._plain:
            self.times.append(seconds)
            self.waits.append(self._waited)
        self.leave()
        self.done += 1

    def leave(self) -> None:
        """No operators are recorded any more."""
        if self._recording is not None:
            self._recording.__exit__(None, None, None)
            self.rounds.append(self._recording)
            self._recording = None


def on_gpu() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_initialized()


def _now() -> float:
    if on_gpu():
        torch.cuda.synchronize()
    return time.perf_counter()


def profile_script(path: Path, arguments: Sequence[str], steps: int) -> Profile:
    """Runs the script until so many of its steps were timed. Raises `OptionError` where it makes none, and what the
    script itself raises."""
    watched, notes = Steps(steps), busy()
    try:
        with as_main(path, arguments), stepping(watched), contextlib.suppress(Enough):
            runpy.run_path(str(path), run_name="__main__")
    except SystemExit as error:
        if error.code not in (None, 0):
            raise
    finally:
        watched.leave()
    if not watched.times or not watched.rounds:
        raise OptionError(f"{path} made {watched.done} steps; {WARM + 2} are needed at least: take fewer --steps")
    device = "cuda" if on_gpu() else "cpu"
    parts = parts_of(
        statistics.median(watched.times), statistics.median(watched.waits),
        least([each.operators for each in watched.rounds]), machine(device),
    )  # fmt: skip
    advice: list[Advice] = waiting_advice(parts)
    return Profile(path.name, "step", "train", parts, device, advice, notes)
