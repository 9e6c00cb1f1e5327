"""Choices by measurement: what `mode="max-autotune"` adds to the tilings that `tiles.py` takes by rule.

kernel ──candidate_tilings──> a dozen forms ──compile, measure──> the fastest, remembered on disk
products with what follows them, as ATen calls and kernels or as kernels alone ──add up──> what may be faster
    ──run both by turns──> the faster

CACHE_DIR/v1/tilings/DIGEST      a tiling and its time as JSON; the digest is of kernel, machine and Triton's release
CACHE_DIR/v1/calls/DIGEST        the time of an ATen call; the digest is of its arguments, machine and PyTorch's release
CACHE_DIR/v1/turns/DIGEST        the times of two alternatives
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from lampwork.codegen.triton import stored
from lampwork.codegen.triton.attention import attention_tilings
from lampwork.codegen.triton.compile import compile_kernels, release
from lampwork.codegen.triton.product import product_tilings
from lampwork.codegen.triton.source import kernel_source
from lampwork.codegen.triton.tiles import Tiling, candidate_tilings
from lampwork.codegen.triton.weighted_sums import sum_tilings
from lampwork.config import cache_dir, environment
from lampwork.errors import CompileError
from lampwork.ir.alternative import Alternative
from lampwork.ir.kernel_print import kernel_text
from lampwork.ir.loops import Kernel
from lampwork.ir.program import DeviceKernel, Extern, TensorRef
from lampwork.ir.record import record
from lampwork.ir.target import Target

#: A form must be this much faster than the rule's to be taken, and a fused product than the call: less is noise.
WORTH = 0.97
#: Raised whenever candidates change.
RECIPE = "2"
#: Kernels that are compiled before the first of them is measured, and how long one program is tuned.
BATCH, MOST_SECONDS = 16, 60.0


class Measure(Protocol):
    """Times things on the device that the program is for."""

    #: What a call's time depends on beside its arguments: PyTorch's release and its switches.
    state: str

    def kernels(self, kernel: Kernel, forms: Sequence[DeviceKernel]) -> list[float]:
        """Milliseconds of one launch of each of the compiled forms of `kernel`."""

    def call(self, call: Extern) -> float:
        """Milliseconds of one ATen call on new tensors."""

    def turns(self, rivals: Sequence[tuple[Alternative, Sequence[DeviceKernel]]]) -> list[float]:
        """Milliseconds of each alternative, its kernels in these forms, when they take turns for a while."""


@record
class Tuned:
    """The tiling to take, and what one launch of it takes; None where nothing was measured."""

    tiling: Tiling
    milliseconds: float | None = None


class Tuner:
    """Measures for one program. `choosing_seconds` and `tiling_seconds`: how long `choose` and `tilings` took."""

    def __init__(self, target: Target, measure: Measure) -> None:
        self.target, self.measure = target, measure
        self.choosing_seconds = self.tiling_seconds = 0.0
        self._tuned: dict[str, Tuned] = {}
        self._calls: dict[str, float] = {}
        self._turns: dict[str, list[float]] = {}

    def tilings(self, kernels: Sequence[Kernel]) -> list[Tiling]:
        """The fastest tiling of each kernel. Kernels whose sizes are not all numbers keep the rule's."""
        start = time.perf_counter()
        try:
            candidates = {
                kernel: attention_tilings(kernel, self.target)
                or sum_tilings(kernel, self.target)
                or candidate_tilings(kernel, self.target)
                for kernel in kernels
            }
            tuned = dict(zip(candidates, self._tune(candidates, fewest=2)))
            return [tuned[kernel].tiling for kernel in kernels]
        finally:
            self.tiling_seconds += time.perf_counter() - start

    def choose(self, parts: Sequence[Sequence[Alternative]]) -> list[int]:
        """The fastest alternative of each part of a program; the first where others are hardly faster."""
        start = time.perf_counter()
        try:
            return self._choose(parts)
        finally:
            self.choosing_seconds += time.perf_counter() - start

    # -- Alternatives -------------------------------------------------------------------------------------------------

    def _choose(self, parts: Sequence[Sequence[Alternative]]) -> list[int]:
        candidates: dict[Kernel, tuple[Tiling, ...]] = {}
        sound = [[self._candidates(each, candidates) for each in part] for part in parts]
        tuned = dict(zip(candidates, self._tune(candidates, fewest=1)))
        chosen = []
        for part, usable in zip(parts, sound):
            if len(part) < 2 or not any(usable[1:]):
                chosen.append(0)
                continue
            times = [self._time(each, part, tuned) if fine else float("inf") for each, fine in zip(part, usable)]
            fastest = min(range(len(part)), key=times.__getitem__)
            may_win = times[fastest] < times[0] < float("inf")
            chosen.append(fastest if may_win and self._wins(part[fastest], part[0], tuned) else 0)
        return chosen

    def _candidates(self, alternative: Alternative, candidates: dict[Kernel, tuple[Tiling, ...]]) -> bool:
        """Notes which tilings to try of an alternative's kernels; whether there are any of each."""
        found = {kernel: candidate_tilings(kernel, self.target) for kernel in alternative.kernels}
        found |= {kernel: product_tilings(kernel, self.target) for kernel in alternative.products}
        if any(kernel.sizes or not tilings for kernel, tilings in found.items()):
            return False
        candidates |= found
        return True

    def _time(self, alternative: Alternative, part: Sequence[Alternative], tuned: dict[Kernel, Tuned]) -> float:
        """Milliseconds of an alternative, but for what all alternatives of the part have in common."""
        shared = Counter(part[0].kernels)
        for each in part[1:]:
            shared &= Counter(each.kernels)
        total = 0.0
        for kernel, times in (Counter(alternative.kernels) - shared).items():
            milliseconds = tuned[kernel].milliseconds if kernel in tuned else None
            total += times * (float("inf") if milliseconds is None else milliseconds)
        return total + sum(self._call(call) for call in alternative.calls)

    def _wins(self, candidate: Alternative, usual: Alternative, tuned: dict[Kernel, Tuned]) -> bool:
        """Whether it is faster as a whole, under load: alone for a moment, kernels run at clock rates which they do not
        keep, and what one leaves in the cache the next one finds there."""
        rivals = (candidate, usual)
        text = "\n".join(_alternative_text(each, tuned) for each in rivals)
        key = _digest(self.measure.state, self.target, text)
        times = self._turns.get(key) or _read("turns", key)
        if not isinstance(times, list) or len(times) != 2 or not {int, float}.issuperset(map(type, times)):
            forms = [self._forms(each, tuned) for each in rivals]
            times = self.measure.turns(list(zip(rivals, forms)))
            _write("turns", key, times)
        self._turns[key] = times
        return times[0] < WORTH * times[1] < float("inf")

    def _forms(self, alternative: Alternative, tuned: dict[Kernel, Tuned]) -> tuple[DeviceKernel, ...]:
        tilings = [(kernel, tuned[kernel].tiling) for kernel in alternative.kernels]
        return compile_kernels([kernel_source(kernel, self.target, tiling=tiling) for kernel, tiling in tilings])

    def _call(self, call: Extern) -> float:
        key = _digest(self.measure.state, self.target, _call_text(call))
        found = self._calls.get(key)
        if found is None:
            known = _read("calls", key)
            found = self._calls[key] = known if isinstance(known, float) else self.measure.call(call)
            _write("calls", key, found)
        return found

    # -- Tilings ------------------------------------------------------------------------------------------------------

    def _tune(self, candidates: dict[Kernel, tuple[Tiling, ...]], fewest: int) -> list[Tuned]:
        """What is best of each kernel's tilings, measured if there are `fewest`. Past `MOST_SECONDS` the first is, as
        it is for kernels whose sizes are not all numbers."""
        keys = {kernel: _digest(release(), self.target, kernel_text(kernel)) for kernel in candidates}
        wanted = []
        for kernel, tilings in candidates.items():
            known = self._tuned.get(keys[kernel]) or _stored(keys[kernel])
            if (known is None or known.milliseconds is None) and len(tilings) >= fewest and not kernel.sizes:
                wanted.append(kernel)
            self._tuned[keys[kernel]] = known or Tuned(tilings[0])
        start = time.perf_counter()
        for first in range(0, len(wanted), BATCH):
            if time.perf_counter() - start + self.choosing_seconds > MOST_SECONDS:
                break
            batch = wanted[first : first + BATCH]
            pairs = [(kernel, each) for kernel in batch for each in candidates[kernel]]
            compiled = iter(_compile([kernel_source(kernel, self.target, tiling=each) for kernel, each in pairs]))
            for kernel in batch:
                forms = [(each, form) for each in candidates[kernel] if (form := next(compiled)) is not None]
                found = self._tuned[keys[kernel]] = self._fastest(kernel, candidates[kernel][0], forms)
                if found.milliseconds is not None:
                    _write("tilings", keys[kernel], asdict(found))
        return [self._tuned[keys[kernel]] for kernel in candidates]

    def _fastest(self, kernel: Kernel, rule: Tiling, forms: Sequence[tuple[Tiling, DeviceKernel]]) -> Tuned:
        times = self.measure.kernels(kernel, [form for _, form in forms])
        taken = dict(zip((each for each, _ in forms), times))
        fastest = min(taken, key=taken.__getitem__, default=rule)
        usual = taken.get(rule, float("inf"))
        best = taken.get(fastest, float("inf"))
        if best == float("inf"):
            return Tuned(rule)
        return Tuned(fastest, best) if best < WORTH * usual else Tuned(rule, usual)


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


def _alternative_text(alternative: Alternative, tuned: dict[Kernel, Tuned]) -> str:
    kernels = [f"{kernel_text(kernel)} {tuned[kernel].tiling}" for kernel in alternative.kernels]
    return "\n".join([*kernels, *(_call_text(call) for call in alternative.calls)])


def _call_text(call: Extern) -> str:
    """What decides how long a call takes: operator and operands, but not whose they are."""

    def shown(value: object) -> Any:
        if isinstance(value, TensorRef):
            return (value.dtype, value.shape, value.strides)
        return tuple(shown(each) for each in value) if isinstance(value, tuple) else value

    return repr((call.op, shown(call.args), shown(call.kwargs)))


# -- What is remembered -----------------------------------------------------------------------------------------------


def _digest(release_or_state: str, target: Target, text: str) -> str:
    return hashlib.sha256("\n".join((RECIPE, release_or_state, repr(target), text)).encode()).hexdigest()


def _stored(name: str) -> Tuned | None:
    found = _read("tilings", name)
    try:
        return None if found is None else Tuned(Tiling(**found["tiling"]), float(found["milliseconds"]))
    except (ValueError, TypeError, KeyError):  # not what it should be: measured anew
        return None


def _folder(kind: str) -> Path:
    return Path(cache_dir()) / "v1" / kind


def _read(kind: str, name: str) -> Any:
    data = stored.read(_folder(kind), name) if environment.cache else None
    try:
        return None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        return None


def _write(kind: str, name: str, content: object) -> None:
    """Remember for other processes, but for what failed; a folder that cannot be written to is no error."""
    text = json.dumps(content)
    if environment.cache and "Infinity" not in text:
        stored.write(_folder(kind), name, [text.encode()])
