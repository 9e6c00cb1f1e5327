"""What this machine can do at best, measured once a process: arithmetic, memory, and one operator that does nothing."""

from __future__ import annotations

import functools
import time

import torch

from lampwork.debug.cost import copy_bytes_a_second
from lampwork.ir.record import record

ROUNDS = 5
#: Products whose speed stands for the machine's: large enough to be at it, small enough to take a moment.
SIDE = {"cpu": 768, "cuda": 4096}
OPERATORS = 200


@record
class Machine:
    """Speeds of a device.

    flops      of a large matrix product, a second; by dtype
    operator   seconds that an operator takes that has next to nothing to compute
    """

    device: str
    flops: dict[torch.dtype, float]
    operator: float

    def memory_seconds(self, moved_bytes: int) -> float:
        """What moving so many bytes, read and written, takes at the speed of a copy of that size."""
        if moved_bytes <= 0:
            return 0.0
        size = min(max(moved_bytes // 2, 1 << 16), 1 << 28)
        return moved_bytes / copy_bytes_a_second(1 << (size - 1).bit_length(), self.device)

    def compute_seconds(self, operations: int, dtype: torch.dtype) -> float:
        return operations / self.flops.get(dtype, self.flops[torch.float32])


@functools.cache
def machine(device: str) -> Machine:
    """Of "cpu" or "cuda"; takes some tenths of a second."""
    with torch.inference_mode():
        dtypes = (torch.float32, torch.bfloat16) if device == "cuda" else (torch.float32,)
        flops = {dtype: 2 * SIDE[device] ** 3 / _product_seconds(device, dtype) for dtype in dtypes}
        return Machine(device, flops, _operator_seconds(device))


def _product_seconds(device: str, dtype: torch.dtype) -> float:
    side = SIDE[device]
    x, y = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    return min(_seconds(lambda: x @ y, device) for _ in range(ROUNDS + 1))


def _operator_seconds(device: str) -> float:
    x = torch.zeros(1, device=device)

    def some() -> None:
        for _ in range(OPERATORS):
            x.add(1)

    return min(_seconds(some, device) for _ in range(ROUNDS)) / OPERATORS


def _seconds(call: object, device: str) -> float:
    assert callable(call)
    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started
