"""One measurement in a process of its own: `python -P worker.py JOB.json` writes its result as JSON.

A crash, a hang or a lost cache of one compiler then costs one cell of the table. Run as a script and not as
`-m lampwork.verdict.worker`, so that importing lampwork itself can be timed: a compiler's own import belongs to its
start-up. For the same reason lampwork is imported inside functions here.

Jobs (`Job.kind`):
  start     time to the first result of one column in this fresh process, then its peak memory over some calls
  steady    every column in turns: median time of a call, errors against eager and float64, guards, native share
  overhead  `lambda x: (x + 1) * 2` on 8 elements through every column
"""

from __future__ import annotations

import contextlib
import copy
import gc
import importlib
import json
import platform
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

OURS = ("lampwork", "freeze")


@dataclass(frozen=True)
class Job:
    """What one worker process does; every field is plain JSON."""

    kind: str
    model: str
    columns: tuple[str, ...]
    result: str
    progress: str
    device: str = "cpu"
    dtype: str = "float32"
    mode: str | None = None
    grad_mode: str = "no_grad"
    size: str = "full"
    seconds: float = 8.0
    min_rounds: int = 10
    threads: int | None = None
    compiler: str = "lampwork:compile"
    peer_backend: str = "inductor"


@dataclass
class Watch:
    """Says in a file what the process is doing, so that its parent can show it, or name it after a crash."""

    path: str
    events: list[str] = field(default_factory=list)

    def __call__(self, column: str, step: str) -> None:
        with open(self.path, "a") as file:
            file.write(json.dumps({"column": column, "step": step}) + "\n")


def main(path: str) -> None:
    with open(path) as file:
        fields = json.load(file)
    job = Job(**{**fields, "columns": tuple(fields["columns"])})
    import torch

    if job.threads:
        torch.set_num_threads(job.threads)
    loaded = {name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules}
    started = time.perf_counter()
    import_error = None
    if set(OURS) & set(job.columns):
        try:
            importlib.import_module(job.compiler.partition(":")[0])
        except Exception:  # reported per column; eager and the peer can still be measured
            import_error = traceback.format_exc()
    import_seconds = time.perf_counter() - started
    result: dict[str, Any] = {"import_seconds": import_seconds, "import_error": import_error}
    result["environment"] = environment(torch)
    result["loaded_before"] = sorted(loaded)
    kinds: dict[str, Callable[[Job, Watch], dict[str, Any]]] = {
        "start": run_start,
        "steady": run_steady,
        "overhead": run_overhead,
    }
    result.update(kinds[job.kind](job, Watch(job.progress)))
    with open(job.result, "w") as file:
        json.dump(result, file)


def environment(torch: Any) -> dict[str, Any]:
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


def compile_column(job: Job, column: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as the named column runs it."""
    import torch

    if column == "eager":
        return function
    if column == "peer":
        return torch.compile(function, mode=job.mode, backend=job.peer_backend)
    module, _, name = job.compiler.partition(":")
    compiler = getattr(importlib.import_module(module), name)
    options = {"freeze": True} if column == "freeze" else None
    return compiler(function, mode=job.mode, options=options)


def grad_mode(name: str) -> contextlib.AbstractContextManager[Any]:
    import torch

    return {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}[name]()


def run_start(job: Job, watch: Watch) -> dict[str, Any]:
    """Seconds from the call of the compiler to the first result, and peak memory of the calls after it.

    The model is built before. Whatever the compiler imports, reads or starts on the way is counted.
    """
    import torch

    from lampwork.verdict import measure, zoo

    (column,) = job.columns
    watch(column, "building the model")
    workload = zoo.build(job.model, device=job.device, dtype=getattr(torch, job.dtype), size=job.size)
    modules_before = set(sys.modules)
    gc.collect()
    resident_before, _ = measure.resident_mib()
    watch(column, "first call")
    with grad_mode(job.grad_mode):
        started = time.perf_counter()
        compiled = compile_column(job, column, workload.function)
        output = compiled(*workload.args, **workload.kwargs)
        first_seconds = time.perf_counter() - started
        compile_peak = measure.resident_mib()[1]
        del output
        started = time.perf_counter()
        compiled(*workload.args, **workload.kwargs)
        second_seconds = time.perf_counter() - started
        watch(column, "peak memory")
        gc.collect()
        separate = measure.reset_peak_memory()
        for _ in range(3):
            compiled(*workload.args, **workload.kwargs)
        resident_after, peak = measure.resident_mib()
    counts: dict[str, Any] = {}
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


def run_steady(job: Job, watch: Watch) -> dict[str, Any]:
    """Errors, counts and interleaved times of every column that compiles; a column that raises is reported."""
    import torch

    from lampwork.verdict import measure, share, verify, zoo

    watch("eager", "building the model")
    dtype = getattr(torch, job.dtype)
    workload = zoo.build(job.model, device=job.device, dtype=dtype, size=job.size)
    args, kwargs = workload.args, workload.kwargs
    columns: dict[str, dict[str, Any]] = {name: {} for name in job.columns}
    compiled: dict[str, Callable[..., Any]] = {}
    with grad_mode(job.grad_mode):
        watch("eager", "float64 reference")
        reference = reference_outputs(workload)
        expected = workload.function(*args, **kwargs)
        for column in job.columns:
            watch(column, "compiling")
            with reporting(columns[column]):
                function = compile_column(job, column, workload.function)
                output = function(*args, **kwargs)
                columns[column]["verified"] = asdict(verify.compare(output, expected, reference))
                output = None
                again = function(*args, **kwargs)  # the second call takes the fast path: judged as well
                columns[column]["verified_again"] = asdict(verify.compare(again, expected, reference))
                again = None
                compiled[column] = function
        expected = None
        watch("eager", "timing in turns")
        calls = {name: lambda f=function: f(*args, **kwargs) for name, function in compiled.items()}
        timings = measure.measure_interleaved(
            calls,
            seconds=job.seconds,
            min_rounds=job.min_rounds,
            on_round=lambda n: watch("eager", f"timing in turns, round {n}") if n % 5 == 0 else None,
        )
        for name, timing in timings.items():
            columns[name]["timing"] = timing.as_dict()
        watch("eager", "profiling operators")
        eager_profile = share.operator_times(lambda: workload.function(*args, **kwargs))
        for column, function in compiled.items():
            if column == "eager":
                continue
            watch(column, "guards and statistics")
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
    other = "inference_mode" if job.grad_mode == "no_grad" else "no_grad"
    for column in OURS:
        if column in compiled:
            watch(column, f"checking under {other}")
            columns[column][other] = check_mode(job, column, other, workload, reference)
    return {
        "columns": columns,
        "products_share": eager_profile.products_share,
        "eager_operators": eager_profile.as_dict(),
        "description": workload.description,
    }


def check_mode(job: Job, column: str, mode: str, workload: Any, reference: Any) -> dict[str, Any]:
    """The column compiled anew and judged under another grad mode: verdict and counts."""
    from lampwork.verdict import verify

    found: dict[str, Any] = {}
    with reporting(found), grad_mode(mode):
        expected = workload.function(*workload.args, **workload.kwargs)
        function = compile_column(job, column, workload.function)
        output = function(*workload.args, **workload.kwargs)
        found["verified"] = asdict(verify.compare(output, expected, reference))
        found["stats"] = stats_of(function)
    return found


def reference_outputs(workload: Any) -> Any:
    """The workload's outputs in float64, or None where it cannot run so (a plain function may hold weights)."""
    import torch

    from lampwork.verdict import zoo

    if workload.module is None:
        return None
    try:
        module = copy.deepcopy(workload.module).double()
        args = zoo.convert(workload.args, dtype=torch.float64)
        kwargs = zoo.convert(workload.kwargs, dtype=torch.float64)
        return module(*args, **kwargs)
    except (RuntimeError, TypeError, NotImplementedError):
        return None


def run_overhead(job: Job, watch: Watch) -> dict[str, Any]:
    """Median microseconds of a call that computes almost nothing, and of its guards."""
    import torch

    from lampwork.verdict import measure
    from lampwork.verdict.zoo import Workload

    function = lambda x: (x + 1) * 2
    workload = Workload("tiny", function, (torch.arange(8, dtype=getattr(torch, job.dtype)),))
    (x,) = workload.args
    columns: dict[str, dict[str, Any]] = {name: {} for name in job.columns}
    compiled: dict[str, Callable[..., Any]] = {}
    with grad_mode(job.grad_mode):
        for column in job.columns:
            watch(column, "compiling")
            with reporting(columns[column]):
                made = compile_column(job, column, function)
                if not torch.equal(made(x), function(x)):
                    raise AssertionError(f"{column} computed {made(x)} instead of {function(x)}")
                compiled[column] = made
        watch("eager", "timing in turns")
        calls = {name: lambda f=made: f(x) for name, made in compiled.items()}
        timings = measure.measure_interleaved(
            calls, seconds=min(job.seconds, 4.0), min_rounds=30, calls_per_sample=500, warmup_rounds=3
        )
        empty = measure.measure_interleaved({"call": lambda: None}, seconds=0.2, calls_per_sample=500)["call"]
        for name, timing in timings.items():
            columns[name]["call_us"] = timing.median_ms * 1e3 - empty.median_ms * 1e3
            columns[name]["spread"] = timing.spread
            if name != "eager":
                with reporting(columns[name], "guard_error"):
                    columns[name]["guard_us"] = guard_time_us(name, compiled[name], workload)
    return {"columns": columns}


def guard_time_us(column: str, function: Callable[..., Any], workload: Any) -> float | None:
    """Microseconds of one check of the entry's guards; None where the compiler does not let that be measured."""
    from lampwork import _torch
    from lampwork.verdict import measure

    if column == "peer":
        check = _torch.peer_guard_check(lambda: workload.function(*workload.args, **workload.kwargs))
    else:
        check = own_guard_check(function, workload)
    if check is None:
        return None
    timing = measure.measure_interleaved({"check": check}, seconds=0.5, min_rounds=20, calls_per_sample=20)
    return timing["check"].median_ms * 1e3


def own_guard_check(function: Callable[..., Any], workload: Any) -> Callable[[], bool] | None:
    """The check that opens the entry which serves this call, as a call runs it; None if no entry does."""
    entry = serving_entry(function, workload)
    if entry is None:
        return None
    from lampwork.runtime.function import compiled_of

    original, args, kwargs = compiled_of(function).function, workload.args, workload.kwargs
    return lambda: entry.holds(original, args, kwargs)


def serving_entry(function: Callable[..., Any], workload: Any) -> Any:
    """The entry of the compiled function that serves this call; None if no entry does."""
    from lampwork.runtime.function import compiled_of

    compiled = compiled_of(function)
    for entry in compiled.entries:
        if entry.holds(compiled.function, workload.args, workload.kwargs):
            return entry
    return None


def stats_of(function: Callable[..., Any]) -> dict[str, Any] | None:
    """`lampwork.stats` as JSON; None where there is none."""
    stats = getattr(importlib.import_module("lampwork"), "stats", None)
    return None if stats is None else plain(stats(function))


def plain(value: Any) -> Any:
    """`value` in JSON's types; what has none becomes its text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


@contextlib.contextmanager
def reporting(found: dict[str, Any], key: str = "error") -> Any:
    """Turn an exception of the block into an entry of `found`: the last line, and the traceback beside it."""
    try:
        yield
    except Exception as error:
        found[key] = f"{type(error).__name__}: {error}"[:2000]
        found[f"{key}_traceback"] = traceback.format_exc()[-6000:]


if __name__ == "__main__":
    main(sys.argv[1])
