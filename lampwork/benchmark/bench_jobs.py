"""What `lampwork bench` measures of one mode on a CPU; `Job.kind`:

  start     time to the first result of one column in this fresh process, then its peak memory over some calls
  steady    every column in turns: median time of a call, errors against eager and float64, guards, native share
  overhead  `lambda x: (x + 1) * 2` on 8 elements through every column

Columns are `eager`, `peer` (`torch.compile`), `lampwork` and `freeze`.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from dataclasses import asdict

import torch

from lampwork.benchmark import measure, zoo
from lampwork.benchmark.bench import OURS, Settings
from lampwork.benchmark.columns import (
    compile_by,
    compile_tiny,
    grad_mode,
    guard_time_us,
    reporting,
    serving_entry,
    stats_of,
    tiny,
)
from lampwork.benchmark.job import Job
from lampwork.benchmark.record import Found
from lampwork.benchmark.zoo import Workload
from lampwork.verdict import verify


def run_start(job: Job[Settings]) -> Found:
    """Seconds from the call of the compiler to the first result, and peak memory of the calls after it.

    The model is built before. Whatever the compiler imports, reads or starts on the way is counted.
    """
    (column,) = job.columns
    job.say(column, "building the model")
    workload = zoo.build(job.model, device=job.settings.device, dtype=getattr(torch, job.settings.dtype), size=job.size)
    modules_before = set(sys.modules)
    gc.collect()
    resident_before, _ = measure.resident_mib()
    job.say(column, "first call")
    with grad_mode(job.settings.grad_mode):
        started = time.perf_counter()
        compiled = compile_by(column, workload.function, job.settings, job.settings.mode)
        output = compiled(*workload.args, **workload.kwargs)
        first_seconds = time.perf_counter() - started
        compile_peak = measure.resident_mib()[1]
        del output
        started = time.perf_counter()
        compiled(*workload.args, **workload.kwargs)
        second_seconds = time.perf_counter() - started
        job.say(column, "peak memory")
        gc.collect()
        separate = measure.reset_peak_memory()
        for _ in range(3):
            compiled(*workload.args, **workload.kwargs)
        resident_after, peak = measure.resident_mib()
    counts: Found = {}
    if column in OURS:
        with reporting(counts, "stats_error"):
            counts["stats"] = stats_of(compiled)
    return {
        "first_call_seconds": first_seconds,
        "second_call_seconds": second_seconds,
        "resident_before_mib": resident_before,
        "compile_peak_mib": compile_peak,
        "peak_mib": peak if separate else None,
        "resident_after_mib": resident_after,
        "modules_loaded": sorted({name.partition(".")[0] for name in set(sys.modules) - modules_before}),
        "stage_modules": sorted(
            name
            for name in sys.modules
            if name.startswith(
                ("lampwork.capture", "lampwork.graph", "lampwork.lower", "lampwork.schedule", "lampwork.codegen")
            )
            or name == "llvmlite"
        ),
        **counts,
    }


def run_steady(job: Job[Settings]) -> Found:
    """Errors, counts and interleaved times of every column that compiles; a column that raises is reported."""
    from lampwork.benchmark import share  # which loads parts of lampwork that a start pays for

    job.say("eager", "building the model")
    dtype = getattr(torch, job.settings.dtype)
    workload = zoo.build(job.model, device=job.settings.device, dtype=dtype, size=job.size)
    args, kwargs = workload.args, workload.kwargs
    columns: dict[str, Found] = {name: {} for name in job.columns}
    compiled: dict[str, Callable] = {}
    with grad_mode(job.settings.grad_mode):
        job.say("eager", "float64 reference")
        reference, _ = verify.reference_outputs(workload, ("float64",))
        expected = workload.function(*args, **kwargs)
        for column in job.columns:
            job.say(column, "compiling")
            with reporting(columns[column]):
                function = compile_by(column, workload.function, job.settings, job.settings.mode)
                output = function(*args, **kwargs)
                columns[column]["verified"] = asdict(verify.compare(output, expected, reference))
                output = None
                again = function(*args, **kwargs)  # the second call takes the fast path: judged as well
                columns[column]["verified_again"] = asdict(verify.compare(again, expected, reference))
                again = None
                compiled[column] = function
        expected = None
        job.say("eager", "timing in turns")
        calls = {name: lambda f=function: f(*args, **kwargs) for name, function in compiled.items()}
        timings = measure.measure_interleaved(
            calls,
            seconds=job.settings.seconds,
            min_rounds=job.settings.min_rounds,
            on_round=lambda n: job.say("eager", f"timing in turns, round {n}") if n % 5 == 0 else None,
        )
        for name, timing in timings.items():
            columns[name]["timing"] = timing.as_dict()
        job.say("eager", "profiling operators")
        eager_profile = share.operator_times(lambda: workload.function(*args, **kwargs))
        for column, function in compiled.items():
            if column == "eager":
                continue
            job.say(column, "guards and statistics")
            with reporting(columns[column], "guard_error"):
                columns[column]["guard_us"] = guard_time_us(column, function, workload)
            if column in OURS:
                with reporting(columns[column], "stats_error"):
                    columns[column]["stats"] = stats_of(function)
                    compiled_profile = share.operator_times(calls[column])
                    extern = (columns[column]["stats"] or {}).get("extern_calls") or {}
                    entry = serving_entry(function, workload)
                    running = entry is not None and entry.host is not None
                    columns[column]["kernels"] = entry.kernels if running else 0
                    fused = share.fused_operators(entry.artifact.program.steps if running else ())
                    columns[column]["native"] = share.native_share(eager_profile, compiled_profile, extern, fused)
    other = "inference_mode" if job.settings.grad_mode == "no_grad" else "no_grad"
    for column in OURS:
        if column in compiled:
            job.say(column, f"checking under {other}")
            columns[column][other] = check_mode(job, column, other, workload, reference)
    return {
        "columns": columns,
        "products_share": eager_profile.products_share,
        "eager_operators": eager_profile.as_dict(),
        "description": workload.description,
    }


def check_mode(job: Job[Settings], column: str, mode: str, workload: Workload, reference: object) -> Found:
    """The column compiled anew and judged under another grad mode: verdict and counts."""
    found: Found = {}
    with reporting(found), grad_mode(mode):
        expected = workload.function(*workload.args, **workload.kwargs)
        function = compile_by(column, workload.function, job.settings, job.settings.mode)
        output = function(*workload.args, **workload.kwargs)
        found["verified"] = asdict(verify.compare(output, expected, reference))
        found["stats"] = stats_of(function)
    return found


def run_overhead(job: Job[Settings]) -> Found:
    """Median microseconds of a call that computes almost nothing, and of its guards."""
    x = torch.arange(8, dtype=getattr(torch, job.settings.dtype))
    workload = zoo.Workload("tiny", tiny, (x,))
    columns: dict[str, Found] = {name: {} for name in job.columns}
    with grad_mode(job.settings.grad_mode):
        by_column = lambda column, function: compile_by(column, function, job.settings, job.settings.mode)
        compiled = compile_tiny(job, columns, x, by_column)
        calls = {name: lambda f=made: f(x) for name, made in compiled.items()}
        timings = measure.measure_interleaved(
            calls, seconds=min(job.settings.seconds, 4.0), min_rounds=30, calls_per_sample=500, warmup_rounds=3
        )
        empty = measure.measure_interleaved({"call": lambda: None}, seconds=0.2, calls_per_sample=500)["call"]
        for name, timing in timings.items():
            columns[name]["call_us"] = timing.median_ms * 1e3 - empty.median_ms * 1e3
            columns[name]["spread"] = timing.spread
            if name != "eager":
                with reporting(columns[name], "guard_error"):
                    columns[name]["guard_us"] = guard_time_us(name, compiled[name], workload)
    return {"columns": columns}


JOBS: dict[str, Callable[[Job], Found]] = {"start": run_start, "steady": run_steady, "overhead": run_overhead}
