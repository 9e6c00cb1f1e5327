"""What an artifact was made for: it serves only where all of these are the same."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import sys

import torch

from lampwork import __version__
from lampwork.config import environment
from lampwork.ir.artifact import FORMAT


@functools.cache
def _versions() -> tuple[tuple[str, str], ...]:
    return (
        ("lampwork", __version__),
        ("format", str(FORMAT)),
        ("sources", _checkout_state()),
        ("torch", str(torch.__version__)),
        ("python", platform.python_version()),
        ("implementation", sys.implementation.cache_tag),
        ("machine", platform.machine()),
        ("features", cpu_features()),
        ("caps", _caps()),
        *((("poison", "1"),) if environment.poison else ()),
    )


def versions() -> dict[str, str]:
    """Lampwork, torch, Python, machine and its instruction set features, by name."""
    return dict(_versions())


def _checkout_state() -> str:
    """A digest of the files of a working copy, which change under one version; empty for an installed Lampwork."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    if not os.path.exists(os.path.join(os.path.dirname(package), ".git")):
        return ""
    state, folders = [], [package]
    while folders:
        with os.scandir(folders.pop()) as files:
            for file in files:
                if file.name.endswith(".py"):
                    status = file.stat()
                    state.append(f"{file.path} {status.st_size} {status.st_mtime_ns}")
                elif file.name != "__pycache__" and file.is_dir(follow_symlinks=False):
                    folders.append(file.path)
    return hashlib.sha256("\n".join(sorted(state)).encode()).hexdigest()[:16]


@functools.cache
def cpu_features() -> str:
    """The instruction set features of this machine, as one string; a digest of the flags Linux reports."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith(("flags", "Features")):
                    return " ".join(sorted(set(line.partition(":")[2].split()) & _RELEVANT))
    except OSError:
        pass
    return torch.backends.cpu.get_cpu_capability()


def _caps() -> str:
    """The instruction sets that ATen, oneDNN and our kernels are held to: shapes of programs hang on the paths that
    the libraries take."""
    library = os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or ""
    return f"{torch.backends.cpu.get_cpu_capability()} {library.upper()} {environment.max_isa}"


_RELEVANT = frozenset(
    "sse4_1 sse4_2 avx avx2 fma f16c bmi1 bmi2 avx512f avx512bw avx512dq avx512vl avx512cd avx512_vnni avx512_bf16 "
    "avx512_fp16 amx_tile amx_bf16 amx_int8 asimd asimdhp bf16 i8mm sve sve2".split()
)
