"""What things cost, measured on this machine: bytes through memory, and one check of an entry's guards."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import torch

from lampwork.ir.artifact import Artifact
from lampwork.runtime.entry import Entry

#: Copies are timed between these sizes; smaller ones say how fast a call is, larger ones nothing new.
SMALLEST_BYTES, LARGEST_BYTES = 1 << 16, 1 << 28
#: The best of so many copies counts: others were disturbed.
ROUNDS = 5
#: So long guards are checked over and over.
GUARD_SECONDS = 0.02


def memory_seconds(moved_bytes: int, device: str = "cpu") -> float:
    """What moving `moved_bytes` (read and written, added up) takes on `device`, at the speed of a copy of that size.

    Small copies stay in the processor's caches, as small results do.
    """
    if moved_bytes <= 0:
        return 0.0
    size = min(max(moved_bytes // 2, SMALLEST_BYTES), LARGEST_BYTES)
    return moved_bytes / copy_bytes_a_second(1 << (size - 1).bit_length(), device)


@functools.cache
def copy_bytes_a_second(size_bytes: int, device: str) -> float:
    """Bytes read and written in a second by a copy of `size_bytes`."""
    with torch.inference_mode():
        source = torch.zeros(size_bytes, dtype=torch.uint8, device=device)
        target = torch.zeros_like(source)
        best = min(_copy_seconds(source, target) for _ in range(ROUNDS + 1))
    return 2 * size_bytes / max(best, 1e-9)


def _copy_seconds(source: torch.Tensor, target: torch.Tensor) -> float:
    repeat = max(1, (1 << 22) // source.numel())
    on_gpu = source.device.type == "cuda"
    if on_gpu:
        torch.cuda.synchronize(source.device)
    start = time.perf_counter()
    for _ in range(repeat):
        target.copy_(source)
    if on_gpu:
        torch.cuda.synchronize(source.device)
    return (time.perf_counter() - start) / repeat


def guard_seconds(artifact: Artifact, function: Callable, args: tuple, kwargs: dict) -> float | None:
    """What one check of the artifact's guards takes, as a call makes it; None where they do not hold."""
    try:
        holds = Entry(artifact, _never, break_point=lambda outcome: (_never, None)).holds
    except LookupError:  # this process lacks what the guards name
        return None
    if not holds(function, args, kwargs):
        return None
    for _ in range(5):  # version snapshots are taken by the first checks
        holds(function, args, kwargs)
    calls, start = 0, time.perf_counter()
    best = float("inf")
    while time.perf_counter() - start < GUARD_SECONDS:
        begin = time.perf_counter()
        for _ in range(10):
            holds(function, args, kwargs)
        best = min(best, (time.perf_counter() - begin) / 10)
        calls += 10
    return best


def _never(*arguments: object) -> Any:
    raise AssertionError("an entry made for its guards is not called")
