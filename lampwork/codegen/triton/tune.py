"""Tile shapes by measurement: what `mode="max-autotune"` adds to the tiling that `tiles.py` takes by rule.

kernel ──candidate_tilings──> a dozen forms ──compile, measure──> the fastest, remembered on disk

CACHE_DIR/v1/tilings/DIGEST      one tiling as JSON; the digest is of kernel, machine and Triton's release
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from lampwork.codegen.triton.compile import compile_kernels, release
from lampwork.codegen.triton.source import kernel_source
from lampwork.codegen.triton.tiles import Tiling, candidate_tilings
from lampwork.config import environment
from lampwork.errors import CompileError
from lampwork.ir.kernel_print import kernel_text
from lampwork.ir.loops import Kernel
from lampwork.ir.program import DeviceKernel
from lampwork.ir.target import Target

#: (kernel, forms of it with machine code) -> milliseconds of one launch of each.
Measure = Callable[[Kernel, Sequence[DeviceKernel]], list[float]]

#: A form must be this much faster than the rule's to be taken: less is noise.
WORTH = 0.97
#: Raised whenever candidates change.
RECIPE = "1"


def tune(kernels: Sequence[Kernel], target: Target, measure: Measure) -> list[Tiling]:
    """The fastest tiling of each kernel. Kernels whose sizes are not all numbers keep the rule's."""
    candidates = [candidate_tilings(kernel, target) for kernel in kernels]
    chosen = [tilings[0] for tilings in candidates]
    wanted: list[int] = []
    for number, (kernel, tilings) in enumerate(zip(kernels, candidates)):
        known = _read(_digest(kernel, target))
        if known is not None:
            chosen[number] = known
        elif len(tilings) > 1 and not kernel.sizes:
            wanted.append(number)
    sources = [kernel_source(kernels[number], target, tiling=each) for number in wanted for each in candidates[number]]
    compiled = iter(_compile(sources))
    for number in wanted:
        forms = [(each, form) for each in candidates[number] if (form := next(compiled)) is not None]
        times = measure(kernels[number], [form for _, form in forms])
        taken = dict(zip((each for each, _ in forms), times))
        fastest = min(taken, key=taken.__getitem__, default=chosen[number])
        if fastest in taken and taken[fastest] < WORTH * taken.get(chosen[number], float("inf")):
            chosen[number] = fastest
        _write(_digest(kernels[number], target), chosen[number])
    return chosen


def _compile(sources: list[DeviceKernel]) -> list[DeviceKernel | None]:
    """Machine code of each; None where a tile asks too much of the machine."""
    try:
        return list(compile_kernels(sources))
    except CompileError:
        return [_compile_alone(source) for source in sources]


def _compile_alone(source: DeviceKernel) -> DeviceKernel | None:
    try:
        return compile_kernels([source])[0]
    except CompileError:
        return None


def _digest(kernel: Kernel, target: Target) -> str:
    parts = (RECIPE, release(), repr(target), kernel_text(kernel))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _folder() -> Path:
    return Path(environment.cache_dir) / "v1" / "tilings"


def _read(name: str) -> Tiling | None:
    if not environment.cache:
        return None
    try:
        return Tiling(**json.loads((_folder() / name).read_text()))
    except (OSError, ValueError, TypeError):  # not there, or not what it should be: measured anew
        return None


def _write(name: str, tiling: Tiling) -> None:
    """Remember for other processes; a folder that cannot be written to is no error."""
    if not environment.cache:
        return
    try:
        _folder().mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=_folder(), prefix=".writing-")
        with os.fdopen(handle, "w") as file:
            json.dump(asdict(tiling), file)
        os.replace(temporary, _folder() / name)
    except OSError:
        pass
