"""Clocks and memory of the device that a benchmark runs on: a CPU, or a GPU that works behind the program's back.

Work on a GPU is launched and finishes later. A sample is therefore a row of calls between two synchronisations: the
wall clock gives what the program waits, CUDA events give what the GPU took from the first kernel to the last.
"""

from __future__ import annotations

import contextlib
import gc
import platform
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from lampwork.benchmark.measure import Timing, rounds, summarise, without_collections
from lampwork.benchmark.record import Found

SAMPLE_MS = 20.0


@dataclass(frozen=True)
class DeviceTiming:
    """One candidate's calls: by the wall clock, and by CUDA events (None on a CPU). `calls` calls make a sample."""

    wall: Timing
    device: Timing | None
    calls: int

    def as_dict(self) -> Found:
        device = None if self.device is None else self.device.as_dict()
        return {**self.wall.as_dict(), "device": device, "calls": self.calls}


def synchronise(device: str) -> None:
    """Wait until everything launched so far has finished; raises what went wrong in it."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def measure_in_turns(
    candidates: Mapping[str, Callable[[], object]],
    device: str,
    *,
    seconds: float = 5.0,
    min_rounds: int = 8,
    max_rounds: int = 400,
    calls: int | None = None,
    least_calls: int = 3,
    warmup_rounds: int = 2,
    on_round: Callable[[int], None] | None = None,
) -> dict[str, DeviceTiming]:
    """Time of one call of each candidate, measured in turns; outputs die at once.

    In every round each candidate makes one sample, in an order drawn anew. A sample is `calls` calls in a row between
    two synchronisations: by default as many as take the fastest candidate 20 ms, at least `least_calls`, so that
    waiting for the GPU at its end does not stand for the calls. Rounds go on for `seconds`, at least `min_rounds`.
    """
    names = list(candidates)
    samples: dict[str, list[tuple[float, float | None]]] = {name: [] for name in names}
    if not names:
        return {}
    with without_collections():
        for _ in range(warmup_rounds):
            for name in names:
                candidates[name]()
        if calls is None:
            fastest = min(sample(candidates[name], least_calls, device)[0] for name in names)
            calls = max(least_calls, min(500, round(SAMPLE_MS / max(fastest, 1e-3))))
        for number, order in enumerate(rounds(names, seconds, min_rounds, max_rounds)):
            for name in order:
                samples[name].append(sample(candidates[name], calls, device))
            if on_round is not None:
                on_round(number + 1)
    return {name: _timing(samples[name], calls) for name in candidates}


def sample(call: Callable[[], object], calls: int, device: str) -> tuple[float, float | None]:
    """Milliseconds a call over `calls` calls in a row: by the wall clock, and by CUDA events (None on a CPU)."""
    repeat = range(calls)
    if not device.startswith("cuda"):
        started = time.perf_counter_ns()
        for _ in repeat:
            call()
        return (time.perf_counter_ns() - started) / 1e6 / calls, None
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    started = time.perf_counter_ns()
    begin.record()
    for _ in repeat:
        call()
    end.record()
    torch.cuda.synchronize()
    return (time.perf_counter_ns() - started) / 1e6 / calls, begin.elapsed_time(end) / calls


def _timing(samples: list[tuple[float, float | None]], calls: int) -> DeviceTiming:
    on_device = [device for _, device in samples if device is not None]
    return DeviceTiming(summarise([wall for wall, _ in samples]), summarise(on_device) if on_device else None, calls)


def peak_mib(call: Callable[[], object], device: str, calls: int = 3) -> float | None:
    """GPU memory in use at the peak of some calls, weights and everything else alive included; None on a CPU.

    Memory that CUDA graphs keep for themselves is in use.
    """
    if not device.startswith("cuda"):
        return None
    peaks = []
    for _ in range(calls):
        # What a graph is captured in is free after the capture: it is in the peak of one call, or in this.
        unused = unused_in_graphs_bytes()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        call()
        torch.cuda.synchronize()
        peaks.append(torch.cuda.max_memory_allocated() + unused)
    return max(peaks) / 2**20


def unused_in_graphs_bytes() -> int:
    """What CUDA graphs keep for their replays of memory that torch does not count as allocated."""
    pools = [each for each in torch.cuda.memory_snapshot() if tuple(each["segment_pool_id"]) != (0, 0)]
    return sum(each["total_size"] - each["allocated_size"] for each in pools)


def reserved_mib(device: str) -> float | None:
    """GPU memory that the process keeps while nothing runs, unused blocks given back before; None on a CPU."""
    if not device.startswith("cuda"):
        return None
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved() / 2**20


def kernel_profile(call: Callable[[], object], device: str, calls: int = 3) -> Found | None:
    """Kernels of one call by the profiler: how many, milliseconds in all, and the 15 that take longest; None on a CPU.

    `kernels` maps a name to [launches a call, milliseconds a call]. Copies and fills count as kernels.
    """
    if not device.startswith("cuda"):
        return None
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
    launches: Counter[str] = Counter()
    microseconds: Counter[str] = Counter()
    for event in profiler.events():
        if event.device_type == DeviceType.CUDA:
            launches[event.name] += 1
            microseconds[event.name] += event.self_device_time_total
    longest = {name[:120]: [launches[name] / calls, time / 1e3 / calls] for name, time in microseconds.most_common(15)}
    return {
        "launches": launches.total() / calls,
        "milliseconds": sum(microseconds.values()) / 1e3 / calls,
        "kernels": longest,
    }


def machine() -> Found:
    """Versions and machine, as far as they bear on the figures."""
    cpu = platform.processor()
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        cpu = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), cpu)
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpu": cpu,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "system": platform.platform(),
    }


def describe(device: str) -> Found:
    """The GPU as far as it bears on figures: name, memory, multiprocessors, L2, capability, versions. {} on a CPU."""
    if not device.startswith("cuda"):
        return {}
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    found = {
        "gpu": properties.name,
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "multiprocessors": properties.multi_processor_count,
        "l2_mib": getattr(properties, "L2_cache_size", 0) / 2**20,
        "capability": f"sm_{properties.major}{properties.minor}",
        "cuda": torch.version.cuda,
    }
    try:
        import importlib.metadata

        found["triton"] = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        pass
    return found
