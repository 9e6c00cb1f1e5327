"""`Target`: what scheduling and code generation need to know of the machine. Part of every cache key.

Also the instruction-set levels code is generated for, and which features this machine has: the runtime compares them
with what
stored code needs, so nothing here needs LLVM.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from lampwork.ir.record import record

_SSE4: Final = ("cx16", "popcnt", "sse3", "sse4.1", "sse4.2", "ssse3")
_AVX2: Final = tuple(sorted({*_SSE4, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe"}))
_AVX512: Final = tuple(sorted({*_AVX2, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}))

#: Features each level of generated code uses, by LLVM's names.
LEVELS: Final[dict[str, tuple[str, ...]]] = {"sse4": _SSE4, "avx2": _AVX2, "avx512": _AVX512}

#: /proc/cpuinfo's names where they differ from LLVM's.
_CPUINFO_NAMES: Final = {
    "pni": "sse3", "sse4_1": "sse4.1", "sse4_2": "sse4.2", "bmi1": "bmi", "abm": "lzcnt",
}  # fmt: skip


@record
class Target:
    """One machine as the compiler sees it.

    name          level of LEVELS ("avx512"), or "cpu" where only the schedule matters
    vector_bytes  width of the widest vector register code is generated for (64 for AVX-512)
    threads       threads a kernel may run on; the schedule never depends on it in a way that changes results
    l1_bytes..    data cache sizes; l1 and l2 per core, l3 shared
    features      ISA features by LLVM's names, sorted ("avx2", "avx512f", ...)
    tune          LLVM's name of the processor, for instruction scheduling
    device        "cpu" or "cuda"

    For a GPU, `name` is its architecture ("sm_90"), `threads` the number of multiprocessors, `vector_bytes` the widest
    load of one thread, `l1_bytes` the shared memory one block may have, `l2_bytes` and `l3_bytes` its L2 cache.
    """

    name: str = "cpu"
    vector_bytes: int = 64
    threads: int = 1
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20
    l3_bytes: int = 32 << 20
    features: tuple[str, ...] = ()
    tune: str = ""
    device: str = "cpu"


@lru_cache(1)
def machine_features() -> frozenset[str]:
    """Features of this machine by LLVM's names; empty where the system does not say."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("flags"):
                    flags = line.split(":", 1)[1].split()
                    return frozenset(_CPUINFO_NAMES.get(flag, flag) for flag in flags)
    except OSError:
        pass
    return frozenset()
