"""The machine at hand, or a GPU in it, as a `Target`."""

from __future__ import annotations

import os
import sys
from functools import lru_cache

from lampwork.config import ISA_LEVELS, environment
from lampwork.errors import CompileError
from lampwork.ir.program import device_index
from lampwork.ir.target import LEVELS, Target, machine_features

VECTOR_BYTES = {"avx512": 64, "avx2": 32, "sse4": 16}


def host_target() -> Target:
    """The best `Target` that this machine runs and LAMPWORK_MAX_ISA lets it have, with torch's thread count.

    Raises `RuntimeError` below SSE4.2.
    """
    present = machine_features()
    for name in reversed(ISA_LEVELS[: ISA_LEVELS.index(environment.max_isa) + 1]):
        if present.issuperset(LEVELS[name]):
            return make_target(name, _threads())
    raise RuntimeError("this processor lacks SSE4.2; Lampwork has no CPU back end for it")


def host_target_of(device: str) -> Target:
    """As back ends name it."""
    return host_target()


def cuda_target_of(device: str) -> Target:
    """The device that is named "cuda:1", as `cuda_target`."""
    return cuda_target(device_index(device))


def make_target(name: str, threads: int) -> Target:
    """A target of level `name` with this machine's caches."""
    level1, level2, last = _caches()
    return Target(name, VECTOR_BYTES[name], threads, level1, level2, last, LEVELS[name], _tune())


def cuda_target(index: int) -> Target:
    """The CUDA device of that number. Raises `CompileError` for one that no kernels are generated for."""
    import torch

    if torch.version.hip is not None:
        raise CompileError("generate", "the GPU is AMD's, which no kernels are generated for")
    properties = torch.cuda.get_device_properties(index)
    if properties.major < 8:
        reason = f"{properties.name} has compute capability {properties.major}.{properties.minor}; 8.0 is the least"
        raise CompileError("generate", reason)
    return make_cuda_target(
        f"sm_{properties.major}{properties.minor}",
        properties.multi_processor_count,
        # By their names since 2.4; the sizes of the smallest device that is supported stand in for them.
        getattr(properties, "shared_memory_per_block_optin", 99 << 10),
        getattr(properties, "L2_cache_size", 4 << 20),
    )


def make_cuda_target(name: str, multiprocessors: int, shared_bytes: int, l2_bytes: int) -> Target:
    """A GPU target of architecture `name` ("sm_90"). A thread loads up to 16 bytes at once."""
    return Target(name, 16, multiprocessors, shared_bytes, l2_bytes, l2_bytes, device="cuda")


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
