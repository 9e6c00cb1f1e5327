"""`DeviceKernel`s to machine code: equal ones once, several side by side, kept in memory and on disk by content.

    CACHE_DIR/v1/kernels/DIGEST        a line that says what the file is, then what compilation fills in

The digest is of all that decides the machine code: text, arguments, constants, warps, architecture, Triton's release.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from lampwork.codegen.triton import pool, stored
from lampwork.codegen.triton.worker import ANSWER, to_bytes
from lampwork.config import cache_dir, environment
from lampwork.errors import CompileError
from lampwork.ir.program import DeviceKernel

#: Changed whenever `worker.compile_text` makes other code of the same job.
RECIPE = "5"
#: Size of the folder of kernels; those not used for longest go first, when a process stores its first one.
LIMIT_BYTES = 512 << 20

_HEADER = b"lampwork kernel 2 "
_JOB = ("name", "source", "signature", "aligned", "constants", "num_warps", "num_stages", "arch")
_FILLED = tuple(name for name, _ in ANSWER)

_known: dict[str, dict[str, Any]] = {}
_trimmed = False


def start_compilers(arch: str) -> None:
    """Start the processes that compile, so that they are ready when a program has been captured. Returns at once."""
    if available():
        pool.start(environment.compile_workers, arch)


def available() -> bool:
    """Triton is installed."""
    return bool(release())


def compile_kernels(kernels: Sequence[DeviceKernel]) -> tuple[DeviceKernel, ...]:
    """`kernels` with their machine code. Raises `CompileError` naming the kernel that Triton refuses."""
    if kernels and not available():
        raise CompileError("generate", "Triton is not installed, and GPU kernels are compiled with it")
    digests = [digest(kernel) for kernel in kernels]
    missing: dict[str, DeviceKernel] = {}
    for name, kernel in zip(digests, kernels):
        if name not in _known and name not in missing:
            known = _read(name)
            if known is None:
                missing[name] = kernel
            else:
                _known[name] = known
    if missing:
        jobs = [{field: getattr(kernel, field) for field in _JOB} for kernel in missing.values()]
        for (name, kernel), answer in zip(missing.items(), _compile(jobs)):
            if isinstance(answer, str):
                raise CompileError("generate", f"Triton refused {kernel.name}: {answer}")
            _known[name] = filled = {field: answer[field] for field in _FILLED}
            _write(name, filled)
    return tuple(replace(kernel, **_known[name]) for name, kernel in zip(digests, kernels))


def digest(kernel: DeviceKernel) -> str:
    """The name of the kernel's machine code."""
    text = "\n".join(line for line in kernel.source.splitlines() if not line.startswith("#"))  # whose code it was
    parts = [RECIPE, release(), text, *(repr(getattr(kernel, field)) for field in _JOB if field != "source")]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@lru_cache(1)
def release() -> str:
    """Triton's version, without importing it (0.2 s); empty where it is not installed."""
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        return ""
    found = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", Path(spec.origin).read_text(), re.MULTILINE)
    return found.group(1) if found else "unknown"


def _compile(jobs: list[dict[str, object]]) -> list[dict[str, object] | str]:
    """The answer or the error text for each job: from the processes, else from threads of this one."""
    answers = pool.compile_all(jobs, environment.compile_workers)
    if answers is None:
        with ThreadPoolExecutor(min(len(jobs), len(os.sched_getaffinity(0)))) as threads:
            answers = list(threads.map(_compile_here, jobs))
    return answers


def _compile_here(job: dict[str, object]) -> dict[str, object] | str:
    from lampwork.codegen.triton.worker import compile_text

    try:
        return compile_text(job)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


# Files ----------------------------------------------------------------------------------------------------------------


def _folder() -> Path:
    return Path(cache_dir()) / "v1" / "kernels"


def _read(name: str) -> dict[str, object] | None:
    """What is stored under `name`; None where nothing is, or something that cannot be trusted."""
    data = stored.read(_folder(), name) if environment.cache else None
    if data is None:
        return None
    header, _, body = data.partition(b"\n")
    if header != _HEADER + hashlib.sha256(body).hexdigest().encode():
        return None
    return stored.answer_of(body)


def _write(name: str, filled: dict[str, object]) -> None:
    """Store for other processes; a folder that cannot be written to is no error."""
    global _trimmed
    if not environment.cache:
        return
    body = b"".join(to_bytes(filled))
    header = _HEADER + hashlib.sha256(body).hexdigest().encode() + b"\n"
    if stored.write(_folder(), name, (header, body)) and not _trimmed:
        _trimmed = True
        stored.trim(_folder(), LIMIT_BYTES)
