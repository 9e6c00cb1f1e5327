"""The machine at hand as a `Target`."""

from __future__ import annotations

import os
import sys
from functools import lru_cache

from lampwork.ir.target import LEVELS, Target, machine_features

VECTOR_BYTES = {"avx512": 64, "avx2": 32, "sse4": 16}


def host_target() -> Target:
    """The best `Target` that this machine runs, with torch's thread count. Raises `RuntimeError` below SSE4.2."""
    present = machine_features()
    for name in ("avx512", "avx2", "sse4"):
        if present.issuperset(LEVELS[name]):
            return make_target(name, _threads())
    raise RuntimeError("this processor lacks SSE4.2; Lampwork has no CPU back end for it")


def make_target(name: str, threads: int) -> Target:
    """A target of level `name` with this machine's caches."""
    level1, level2, last = _caches()
    return Target(name, VECTOR_BYTES[name], threads, level1, level2, last, LEVELS[name], _tune())


def _threads() -> int:
    torch = sys.modules.get("torch")
    return torch.get_num_threads() if torch is not None else len(os.sched_getaffinity(0))


@lru_cache(1)
def _tune() -> str:
    import llvmlite.binding as llvm

    return str(llvm.get_host_cpu_name())


@lru_cache(1)
def _caches() -> tuple[int, int, int]:
    sizes = {1: 32 << 10, 2: 1 << 20, 3: 0}
    root = "/sys/devices/system/cpu/cpu0/cache"
    try:
        for entry in os.listdir(root):
            if not entry.startswith("index"):
                continue
            folder = f"{root}/{entry}"
            with open(f"{folder}/type") as file:
                if file.read().strip() == "Instruction":
                    continue
            with open(f"{folder}/level") as file:
                level = int(file.read())
            with open(f"{folder}/size") as file:
                text = file.read().strip()
            unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
            sizes[level] = int(text.rstrip("KMG")) * unit
    except (OSError, ValueError):
        pass
    return sizes[1], sizes[2], sizes[3] or sizes[2]
