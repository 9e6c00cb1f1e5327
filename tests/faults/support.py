"""What cases compile, and how they find out that it is right."""

from __future__ import annotations

import os
import random
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import lampwork
from lampwork.errors import LampworkWarning

NOT_STORED = {"cache": False}

# The first comparison imports modules. A child that is forked while another thread does so waits for them forever, with
# or without a compiler.
torch.testing.assert_close(torch.zeros(1), torch.zeros(1))


def folder() -> Path:
    """The case's own folder, which is removed after it."""
    return Path(os.environ["FAULTS_FOLDER"])


def make(number: int) -> Callable:
    """A function of a tensor and a list, another one for each number. It catches errors, as programs do."""

    def function(x: torch.Tensor, notes: list) -> torch.Tensor:
        for turn in range(6 + number % 3):
            try:
                x = (x * 0.5 + number).sin() + turn
            except Exception:
                x = x * 1000
        notes.append(number)
        return x.sum(dim=-1) * 2

    return function


def compiled(function: Callable, stored: bool = False, **settings: Any) -> Any:
    return lampwork.compile(function, options={} if stored else NOT_STORED, **settings)


def check(made: Any, function: Callable, x: torch.Tensor | None = None) -> None:
    """One call of `made` does what `function` does."""
    x = torch.randn(5, 7) if x is None else x
    notes: list[Any] = []
    expected: list[Any] = []
    torch.testing.assert_close(made(x, notes), function(x, expected), rtol=1e-4, atol=1e-5)
    assert notes == expected, (notes, expected)


def check_clean(wait: float = 20.0) -> None:
    """Nothing of a compile is left in this process: no lock, mode, handler or threshold; another thread can compile."""
    import gc

    from lampwork import _torch, collector

    assert not _torch.active_modes(), "a mode is left"
    assert gc.get_threshold()[0] != collector.NEVER, "the collector is left off"
    errors: list[BaseException] = []

    def elsewhere() -> None:
        try:
            check(compiled(make(7)), make(7))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=elsewhere, daemon=True)
    thread.start()
    thread.join(wait)
    assert not thread.is_alive(), "another thread cannot compile"
    if errors:
        raise errors[0]


@contextmanager
def counted_warnings(most: int = 1) -> Iterator[list[str]]:
    """The texts of this package's warnings; no more than `most` come."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    texts += [str(each.message) for each in caught if issubclass(each.category, LampworkWarning)]
    assert len(texts) <= most, texts


def moments(count: int, longest: float) -> Iterator[float]:
    """Delays in seconds, from short to `longest`, of which short ones are more."""
    for _ in range(count):
        yield longest * random.random() ** 2 + 0.0002


def wait_for(pid: int, seconds: float) -> int:
    """The exit status of a child, which ends within that time."""
    import signal
    import time

    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("a forked child hangs")
