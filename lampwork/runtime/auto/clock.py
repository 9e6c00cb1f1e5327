"""How long calls take, told when it is known: on a GPU some calls later, since waiting for it would slow them down."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import torch

#: What is told of a call: its seconds.
Told = Callable[[float], None]


class _Mark:
    """A moment: on the host, and in the work of the GPU where there is one."""

    def __init__(self, on_gpu: bool) -> None:
        self.event: torch.cuda.Event | None = None
        if on_gpu:
            self.event = torch.cuda.Event(enable_timing=True)
            self.event.record()
        self.time = time.perf_counter()

    def passed(self) -> bool:
        return self.event is None or self.event.query()

    def seconds_to(self, later: _Mark) -> float:
        """The longer of the host's time and the GPU's: that of the two which keeps the next call waiting."""
        host = later.time - self.time
        if self.event is None or later.event is None:
            return host
        return max(host, self.event.elapsed_time(later.event) * 1e-3)


class Clock:
    """`start()`, the call, then `stop(told)`; or `until_next(told)`, where what the caller does with the result belongs
    to the call, as a backward pass does: that ends when the next call begins."""

    def __init__(self, on_gpu: bool) -> None:
        self._on_gpu = on_gpu
        self._pending: deque[tuple[_Mark, _Mark, Told]] = deque()
        self._began: _Mark | None = None
        self._left: tuple[_Mark, Told] | None = None

    def start(self) -> None:
        mark = self._began = _Mark(self._on_gpu)
        if self._left is not None:
            began, told = self._left
            self._left = None
            self._pending.append((began, mark, told))
        self.settle()

    def stop(self, told: Told) -> None:
        assert self._began is not None
        self._pending.append((self._began, _Mark(self._on_gpu), told))
        self.settle()

    def until_next(self, told: Told) -> None:
        assert self._began is not None
        self._left = (self._began, told)

    def settle(self) -> None:
        """Tells of the calls that have ended on the device, too."""
        while self._pending and self._pending[0][1].passed():
            began, ended, told = self._pending.popleft()
            told(began.seconds_to(ended))
