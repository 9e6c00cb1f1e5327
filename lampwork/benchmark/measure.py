"""Times that can be compared: candidates take turns in one run, so that drift of the machine meets all alike.

The median stands for a candidate, the quartiles for its spread. Means are not used: one page-cache flush or one
migrated thread would decide them.
"""

from __future__ import annotations

import contextlib
import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lampwork.benchmark.record import Found


@dataclass(frozen=True)
class Timing:
    """The calls of one candidate: median and quartiles in milliseconds over `rounds` samples."""

    median_ms: float
    lower_ms: float
    upper_ms: float
    fastest_ms: float
    rounds: int

    @property
    def spread(self) -> float:
        """Distance of the quartiles as a share of the median."""
        return (self.upper_ms - self.lower_ms) / self.median_ms if self.median_ms else 0.0

    def as_dict(self) -> Found:
        return {**asdict(self), "spread": self.spread}


def summarise(samples_ms: list[float]) -> Timing:
    """Median, quartiles and minimum of at least one sample."""
    ordered = sorted(samples_ms)
    if len(ordered) == 1:
        return Timing(ordered[0], ordered[0], ordered[0], ordered[0], 1)
    lower, median, upper = statistics.quantiles(ordered, n=4, method="inclusive")
    return Timing(median, lower, upper, ordered[0], len(ordered))


def measure_interleaved(
    candidates: Mapping[str, Callable[[], object]],
    *,
    seconds: float = 5.0,
    min_rounds: int = 10,
    max_rounds: int = 2000,
    calls_per_sample: int | None = None,
    warmup_rounds: int = 2,
    keep_outputs: int = 0,
    on_round: Callable[[int], None] | None = None,
) -> dict[str, Timing]:
    """Median time of one call of each candidate, measured in turns.

    Rounds go on until `seconds` have passed, at least `min_rounds` and at most `max_rounds`. In each round every
    candidate runs once, in an order drawn anew, so that none always follows the same neighbour. "Once" is
    `calls_per_sample` calls in a row: by default as many as take the fastest candidate about 2 ms, at most 1000, and
    one if outputs are kept; a single microsecond call would measure its neighbour's traces in the caches.

    With `keep_outputs` == 0 an output dies inside the timed call, as in a loop that does not keep it; otherwise the
    last `keep_outputs` outputs of each candidate stay alive, so that their memory cannot be reused by the next call.
    Cyclic garbage collection is off meanwhile.
    """
    if min_rounds < 1 or max_rounds < min_rounds or (calls_per_sample is not None and calls_per_sample < 1):
        raise ValueError(f"rounds {min_rounds}..{max_rounds} of {calls_per_sample} calls: each must be at least 1")
    names = list(candidates)
    samples: dict[str, list[float]] = {name: [] for name in names}
    kept: dict[str, list[Any]] = {name: [] for name in names}
    with without_collections():
        for _ in range(warmup_rounds):
            for name in names:
                candidates[name]()
        if calls_per_sample is None:
            calls_per_sample = 1
            if not keep_outputs:
                fastest_ms = min((_sample(call, 1, None) for call in candidates.values()), default=1.0)
                calls_per_sample = max(1, min(1000, round(2.0 / max(fastest_ms, 1e-4))))
        for number, order in enumerate(rounds(names, seconds, min_rounds, max_rounds)):
            for name in order:
                sample = _sample(candidates[name], calls_per_sample, kept[name] if keep_outputs else None)
                samples[name].append(sample / calls_per_sample)
                del kept[name][: max(0, len(kept[name]) - keep_outputs)]
            if on_round is not None:
                on_round(number + 1)
    return {name: summarise(samples[name]) for name in candidates}


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Cyclic garbage is collected now, and not inside."""
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def rounds(names: Sequence[str], seconds: float, least: int, most: int) -> Iterator[list[str]]:
    """`names` in an order drawn anew for each round, until `seconds` have passed: `least` to `most` of them."""
    order, drawn = list(names), random.Random(0)
    deadline = time.perf_counter() + seconds
    for number in range(most):
        if number >= least and time.perf_counter() >= deadline:
            return
        drawn.shuffle(order)
        yield order


def _sample(call: Callable[[], object], calls: int, kept: list[object] | None) -> float:
    """Milliseconds that `calls` calls took; their outputs go to `kept`, or die at once if it is None."""
    clock = time.perf_counter_ns
    if kept is not None:
        start = clock()
        for _ in range(calls):
            kept.append(call())
        return (clock() - start) / 1e6
    if calls == 1:
        start = clock()
        call()
        return (clock() - start) / 1e6
    repeat = range(calls)
    start = clock()
    for _ in repeat:
        call()
    return (clock() - start) / 1e6


def geometric_mean(values: list[float]) -> float:
    """The geometric mean of positive numbers; NaN if there are none."""
    return statistics.geometric_mean(values) if values else float("nan")


def reset_peak_memory() -> bool:
    """Start a new peak of resident memory for this process; False where the kernel does not offer that."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        return False
    return True


def resident_mib() -> tuple[float, float]:
    """Resident memory of this process now, and its peak since the last reset, in MiB; NaN where it is not known."""
    fields = {}
    try:
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith(("VmRSS:", "VmHWM:")):
                    fields[line[:5]] = int(line.split()[1]) / 1024
    except OSError:
        pass
    return fields.get("VmRSS", float("nan")), fields.get("VmHWM", float("nan"))
