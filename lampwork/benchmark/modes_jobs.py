"""What `lampwork bench` measures with several modes, or on a GPU; `Job.kind`:

start     time to the first result of one column, and what it keeps of the GPU's memory
steady    every column in turns: time of a call, errors against eager and a reference, kernels, memory, and whether
          outputs that the caller keeps stay right
overhead  `lambda x: (x + 1) * 2` on 8 elements through every column
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from lampwork.benchmark import device, zoo
from lampwork.benchmark.columns import (
    compile_by,
    compile_tiny,
    grad_mode,
    guard_time_us,
    is_ours,
    reporting,
    serving_entry,
    stats_of,
)
from lampwork.benchmark.job import Job
from lampwork.benchmark.modes import Plan
from lampwork.benchmark.record import Found
from lampwork.verdict import verify

WARM_UP = 4  # calls before a column is timed: CUDA graphs are captured in the second or third
KEPT = 6  # outputs that the caller keeps at once


def compile_column(job: Job[Plan], column: str, function: Callable) -> Callable:
    """`function` as the named column runs it."""
    kind, _, mode = column.partition(":")
    return compile_by(kind, function, job.settings, mode)


def run_start(job: Job[Plan]) -> Found:
    """Seconds from the call of the compiler to the first finished result, and of the calls after it.

    The model is on the device and has run eagerly once: what the vendor's libraries do at their first use (0.2 to 2 s)
    comes before any program's first result, compiled or not, and is told apart as `eager_first_seconds`.
    """
    (column,) = job.columns
    job.say(column, "building the model")
    workload = zoo.build(job.model, device=job.settings.device, dtype=getattr(torch, job.settings.dtype), size=job.size)
    call_seconds = []
    with grad_mode(job.settings.grad_mode):
        device.synchronise(job.settings.device)
        started = time.perf_counter()
        workload.function(*workload.args, **workload.kwargs)
        device.synchronise(job.settings.device)
        eager_first = time.perf_counter() - started
        reserved = device.reserved_mib(job.settings.device)
        job.say(column, "first call")
        for number in range(WARM_UP):
            started = time.perf_counter()
            if number == 0:
                compiled = compile_column(job, column, workload.function)
            compiled(*workload.args, **workload.kwargs)
            device.synchronise(job.settings.device)
            call_seconds.append(time.perf_counter() - started)
        job.say(column, "memory")
        peak = device.peak_mib(lambda: compiled(*workload.args, **workload.kwargs), job.settings.device)
    counts: Found = {}
    if is_ours(column):
        with reporting(counts, "stats_error"):
            counts["stats"] = stats_of(compiled)
    held = None if reserved is None else (device.reserved_mib(job.settings.device) or 0.0) - reserved
    return {
        "eager_first_seconds": eager_first,
        "call_seconds": call_seconds,
        "peak_mib": peak,
        "held_mib": held,
        **counts,
    }


def run_steady(job: Job[Plan]) -> Found:
    """Errors, counts and interleaved times of every column that compiles; a column that raises is reported."""
    job.say("eager", "building the model")
    workload = zoo.build(job.model, device=job.settings.device, dtype=getattr(torch, job.settings.dtype), size=job.size)
    args, kwargs = workload.args, workload.kwargs
    columns: dict[str, Found] = {name: {} for name in job.columns}
    compiled: dict[str, Callable] = {}
    spent: dict[str, float] = {}
    with grad_mode(job.settings.grad_mode):
        job.say("eager", "reference")
        with clocked(spent, "reference"):
            reference, precision = verify.reference_outputs(workload)
            expected = workload.function(*args, **kwargs)
            device.synchronise(job.settings.device)
            noise = own_errors(expected, reference)
        for column in job.columns:
            job.say(column, "compiling")
            reserved = device.reserved_mib(job.settings.device)
            with clocked(spent, column), reporting(columns[column]):
                function = compile_column(job, column, workload.function)
                judge(columns[column], "verified", function(*args, **kwargs), expected, reference)
                for _ in range(WARM_UP - 2):
                    function(*args, **kwargs)
                judge(columns[column], "verified_again", function(*args, **kwargs), expected, reference)
                device.synchronise(job.settings.device)
                compiled[column] = function
            after = device.reserved_mib(job.settings.device)
            columns[column]["held_mib"] = None if reserved is None or after is None else after - reserved
        expected = reference = None
        calls = {name: lambda f=function: f(*args, **kwargs) for name, function in compiled.items()}
        job.say("eager", "timing in turns")
        with clocked(spent, "timing"):
            timings = device.measure_in_turns(
                calls, job.settings.device, seconds=job.settings.seconds, min_rounds=job.settings.min_rounds
            )
        for name, timing in timings.items():
            columns[name]["timing"] = timing.as_dict()
        for column, call in calls.items():
            job.say(column, "memory, kernels, statistics")
            with clocked(spent, "details"):
                columns[column]["peak_mib"] = device.peak_mib(call, job.settings.device)
                with reporting(columns[column], "profile_error"):
                    columns[column]["profile"] = (
                        device.kernel_profile(call, job.settings.device) if job.settings.profile else None
                    )
                if is_ours(column):
                    with reporting(columns[column], "stats_error"):
                        columns[column].update(inside(compiled[column], workload))
        # Ours first: one that raises over a kept output may leave its process in a bad way.
        job.say("eager", "keeping outputs")
        with clocked(spent, "kept"):
            inputs = varied(args, KEPT)
            eager = [verify_copy(workload.function(*each, **kwargs)) for each in inputs]
            for column in sorted(compiled, key=lambda name: not is_ours(name)):
                if column != "eager":
                    job.say(column, "keeping outputs")
                    columns[column]["kept"] = keep_outputs(compiled[column], inputs, kwargs, eager, noise)
    return {"columns": columns, "reference": precision, "description": workload.description, "spent": spent}


def judge(found: Found, key: str, output: object, expected: object, reference: object) -> None:
    found[key] = asdict(verify.compare(output, expected, reference))


def inside(function: Callable, workload: object) -> Found:
    """Counts of a column of ours: `lampwork.stats`, kernels of the entry that serves the call, time of its guards."""
    found: Found = {"stats": stats_of(function)}
    entry = serving_entry(function, workload)
    found["kernels"] = 0 if entry is None or entry.host is None else entry.kernels
    with reporting(found, "guard_error"):
        found["guard_us"] = guard_time_us("lampwork", function, workload)
    return found


def varied(args: tuple, count: int) -> list[tuple]:
    """`count` arguments of the same shapes, strides and kinds with other values."""

    def change(value: object, number: int) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        new = torch.empty_like(value)
        new.copy_(value * (1 - number / 16) if value.is_floating_point() else value.roll(number, -1))
        return new

    return [tuple(change(value, number) for value in args) for number in range(count)]


def verify_copy(output: object) -> Any:
    """The tensors of nested outputs, in order, each copied: what they are now, whatever is written there later."""
    return [leaf.clone() for _, leaf in verify.leaves(output) if isinstance(leaf, torch.Tensor)]


def own_errors(eager: object, reference: object) -> list[float]:
    """For each tensor of eager's outputs, the root mean square of its own error; empty without a reference."""
    if reference is None:
        return []
    return [
        verify.rmse(ours, exact)
        for (_, ours), (_, exact) in zip(verify.leaves(eager), verify.leaves(reference))
        if isinstance(ours, torch.Tensor) and isinstance(exact, torch.Tensor)
    ]


def keep_outputs(function: Callable, inputs: list[tuple], kwargs: dict, eager: list, noise: list[float]) -> dict:
    """A plain loop that keeps every output: is each what it was when it was returned, and what eager computes?

    Values are judged by `allclose`, or else by their root mean square difference from eager's: at most twice that of
    the first output, or four times eager's own error on the first inputs (`noise`), which is what an output accepted by
    the rule for half types may differ.
    """
    kept: list[Any] = []
    copies: list[list[object]] = []
    try:
        for each in inputs:
            output = function(*each, **kwargs)
            copies.append(verify_copy(output))
            kept.append(output)
            output = None
        allowed: list[float] = []
        for number, (output, copied, expected) in enumerate(zip(kept, copies, eager)):
            now = [leaf for _, leaf in verify.leaves(output) if isinstance(leaf, torch.Tensor)]
            for index, (held, was, theirs) in enumerate(zip(now, copied, expected, strict=True)):
                if not same_bits(held, was):
                    return {"right": False, "why": f"output {number} changed after it was returned"}
                distance = verify.rmse(held, theirs)
                if number == 0:
                    own = noise[index] if index < len(noise) else 0.0
                    allowed.append(max(2 * distance, 4 * own))
                tolerance = verify.TOLERANCE.get(held.dtype, 1e-4)
                close = torch.allclose(held.double(), theirs.double(), rtol=tolerance, atol=tolerance, equal_nan=True)
                if not close and not distance <= allowed[index] + tolerance / 10:
                    return {"right": False, "why": f"output {number} is off by rmse {distance:.3g}"}
    except Exception as error:
        lines = str(error).strip().splitlines()
        return {"right": False, "why": f"raised {type(error).__name__}: {lines[0] if lines else ''}"[:300]}
    return {"right": True, "why": ""}


def same_bits(first: Any, second: Any) -> bool:
    return torch.equal(first, second) or bool(((first == second) | (first.isnan() & second.isnan())).all())


def run_overhead(job: Job[Plan]) -> Found:
    """Median microseconds of a call that computes almost nothing: launches are asynchronous, in rows of 500."""
    x = torch.arange(8, dtype=getattr(torch, job.settings.dtype)).to(job.settings.device)
    columns: dict[str, Found] = {name: {} for name in job.columns}
    with grad_mode(job.settings.grad_mode):
        by_column = lambda column, function: compile_column(job, column, function)
        compiled = compile_tiny(job, columns, x, by_column, WARM_UP)
        calls = {name: lambda f=made: f(x) for name, made in compiled.items()}
        timings = device.measure_in_turns(
            calls, job.settings.device, seconds=min(job.settings.seconds, 2.0), min_rounds=10, calls=500
        )
        for name, timing in timings.items():
            columns[name]["call_us"] = timing.wall.median_ms * 1e3
            columns[name]["spread"] = timing.wall.spread
            if is_ours(name):
                with reporting(columns[name], "stats_error"):
                    columns[name]["stats"] = stats_of(compiled[name])
    return {"columns": columns}


@contextlib.contextmanager
def clocked(spent: dict[str, float], name: str) -> Any:
    """Add the block's seconds to `spent`: where the time of a benchmark goes is part of its report."""
    started = time.perf_counter()
    try:
        yield
    finally:
        spent[name] = spent.get(name, 0.0) + time.perf_counter() - started


JOBS: dict[str, Callable[[Job], Found]] = {"start": run_start, "steady": run_steady, "overhead": run_overhead}
