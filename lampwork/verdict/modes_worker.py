"""One measurement of `lampwork bench` with several modes, in a process that `fork_server.py` has made for it.

Run as a script with the path of a job as its argument; writes its result as JSON. Columns are `eager`, `peer:MODE`
(`torch.compile`), `lampwork:MODE` and `freeze:MODE`. Like `worker.py` it imports lampwork inside functions, so that
lampwork's own import is part of what a start costs.

Jobs (`Job.kind`):
  start     time to the first result of one column, and what it keeps of the GPU's memory
  steady    every column in turns: time of a call, errors against eager and a reference, kernels, memory, and whether
            outputs that the caller keeps stay right
  overhead  `lambda x: (x + 1) * 2` on 8 elements through every column
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

LIBRARIES = ("torch._dynamo", "torch._inductor", "sympy", "triton", "llvmlite", "lampwork")
WARM_UP = 4  # calls before a column is timed: CUDA graphs are captured in the second or third
KEPT = 6  # outputs that the caller keeps at once


@dataclass(frozen=True)
class Job:
    """What one process does; every field is plain JSON."""

    kind: str
    model: str
    size: str
    columns: tuple[str, ...]
    result: str
    progress: str
    device: str = "cuda"
    dtype: str = "bfloat16"
    grad_mode: str = "no_grad"
    seconds: float = 4.0
    min_rounds: int = 8
    threads: int | None = None
    compiler: str = "lampwork:compile"
    peer_backend: str = "inductor"
    profile: bool = True


def main(path: str) -> None:
    with open(path) as file:
        fields = json.load(file)
    job = Job(**{**fields, "columns": tuple(fields["columns"])})
    loaded = [name for name in LIBRARIES if name in sys.modules]
    import torch

    if job.threads:
        torch.set_num_threads(job.threads)
    started = time.perf_counter()
    import_error = None
    if any(is_ours(column) for column in job.columns):
        try:
            importlib.import_module(job.compiler.partition(":")[0])
        except Exception as error:  # reported per column; the others can still be measured
            import_error = repr(error)
    result: dict[str, Any] = {"import_seconds": time.perf_counter() - started, "import_error": import_error}
    result["loaded_before"] = loaded
    kinds: dict[str, Callable[[Job], dict[str, Any]]] = {
        "start": run_start,
        "steady": run_steady,
        "overhead": run_overhead,
    }
    result.update(kinds[job.kind](job))
    from lampwork.verdict import device, worker

    result["environment"] = {**worker.environment(torch), **device.describe(job.device)}
    with open(job.result, "w") as file:
        json.dump(result, file)


def is_ours(column: str) -> bool:
    return column.startswith(("lampwork", "freeze"))


def say(job: Job, column: str, step: str) -> None:
    """Leave word of what the process is doing, for its parent to show, or to name after a crash."""
    with open(job.progress, "a") as file:
        file.write(json.dumps({"column": column, "step": step}) + "\n")


def compile_column(job: Job, column: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as the named column runs it."""
    import torch

    kind, _, mode = column.partition(":")
    if kind == "eager":
        return function
    if kind == "peer":
        return torch.compile(function, mode=mode, backend=job.peer_backend)
    module, _, name = job.compiler.partition(":")
    compiler = getattr(importlib.import_module(module), name)
    return compiler(function, mode=mode, options={"freeze": True} if kind == "freeze" else None)


def grad_mode(name: str) -> contextlib.AbstractContextManager[Any]:
    import torch

    return {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}[name]()


def run_start(job: Job) -> dict[str, Any]:
    """Seconds from the call of the compiler to the first finished result, and of the calls after it.

    The model is on the device and has run eagerly once: what the vendor's libraries do at their first use (0.2 to 2 s)
    comes before any program's first result, compiled or not, and is told apart as `eager_first_seconds`.
    """
    import torch

    from lampwork.verdict import device, worker, zoo

    (column,) = job.columns
    say(job, column, "building the model")
    workload = zoo.build(job.model, device=job.device, dtype=getattr(torch, job.dtype), size=job.size)
    call_seconds = []
    with grad_mode(job.grad_mode):
        device.synchronise(job.device)
        started = time.perf_counter()
        workload.function(*workload.args, **workload.kwargs)
        device.synchronise(job.device)
        eager_first = time.perf_counter() - started
        reserved = device.reserved_mib(job.device)
        say(job, column, "first call")
        for number in range(WARM_UP):
            started = time.perf_counter()
            if number == 0:
                compiled = compile_column(job, column, workload.function)
            compiled(*workload.args, **workload.kwargs)
            device.synchronise(job.device)
            call_seconds.append(time.perf_counter() - started)
        say(job, column, "memory")
        peak = device.peak_mib(lambda: compiled(*workload.args, **workload.kwargs), job.device)
    counts: dict[str, Any] = {}
    if is_ours(column):
        with worker.reporting(counts, "stats_error"):
            counts["stats"] = worker.stats_of(compiled)
    held = None if reserved is None else (device.reserved_mib(job.device) or 0.0) - reserved
    return {
        "eager_first_seconds": eager_first,
        "call_seconds": call_seconds,
        "peak_mib": peak,
        "held_mib": held,
        **counts,
    }


def run_steady(job: Job) -> dict[str, Any]:
    """Errors, counts and interleaved times of every column that compiles; a column that raises is reported."""
    import torch

    from lampwork.verdict import device, worker, zoo

    say(job, "eager", "building the model")
    workload = zoo.build(job.model, device=job.device, dtype=getattr(torch, job.dtype), size=job.size)
    args, kwargs = workload.args, workload.kwargs
    columns: dict[str, dict[str, Any]] = {name: {} for name in job.columns}
    compiled: dict[str, Callable[..., Any]] = {}
    spent: dict[str, float] = {}
    with grad_mode(job.grad_mode):
        say(job, "eager", "reference")
        with clocked(spent, "reference"):
            reference, precision = reference_outputs(workload)
            expected = workload.function(*args, **kwargs)
            device.synchronise(job.device)
            noise = own_errors(expected, reference)
        for column in job.columns:
            say(job, column, "compiling")
            reserved = device.reserved_mib(job.device)
            with clocked(spent, column), worker.reporting(columns[column]):
                function = compile_column(job, column, workload.function)
                judge(columns[column], "verified", function(*args, **kwargs), expected, reference)
                for _ in range(WARM_UP - 2):
                    function(*args, **kwargs)
                judge(columns[column], "verified_again", function(*args, **kwargs), expected, reference)
                device.synchronise(job.device)
                compiled[column] = function
            after = device.reserved_mib(job.device)
            columns[column]["held_mib"] = None if reserved is None or after is None else after - reserved
        expected = reference = None
        calls = {name: lambda f=function: f(*args, **kwargs) for name, function in compiled.items()}
        say(job, "eager", "timing in turns")
        with clocked(spent, "timing"):
            timings = device.measure_in_turns(calls, job.device, seconds=job.seconds, min_rounds=job.min_rounds)
        for name, timing in timings.items():
            columns[name]["timing"] = timing.as_dict()
        for column, call in calls.items():
            say(job, column, "memory, kernels, statistics")
            with clocked(spent, "details"):
                columns[column]["peak_mib"] = device.peak_mib(call, job.device)
                with worker.reporting(columns[column], "profile_error"):
                    columns[column]["profile"] = device.kernel_profile(call, job.device) if job.profile else None
                if is_ours(column):
                    with worker.reporting(columns[column], "stats_error"):
                        columns[column].update(inside(compiled[column], workload))
        # Ours first: one that raises over a kept output may leave its process in a bad way.
        say(job, "eager", "keeping outputs")
        with clocked(spent, "kept"):
            inputs = varied(args, KEPT)
            eager = [verify_copy(workload.function(*each, **kwargs)) for each in inputs]
            for column in sorted(compiled, key=lambda name: not is_ours(name)):
                if column != "eager":
                    say(job, column, "keeping outputs")
                    columns[column]["kept"] = keep_outputs(compiled[column], inputs, kwargs, eager, noise)
    return {"columns": columns, "reference": precision, "description": workload.description, "spent": spent}


def judge(found: dict[str, Any], key: str, output: Any, expected: Any, reference: Any) -> None:
    from lampwork.verdict import verify

    found[key] = asdict(verify.compare(output, expected, reference))


def inside(function: Callable[..., Any], workload: Any) -> dict[str, Any]:
    """Counts of a column of ours: `lampwork.stats`, kernels of the entry that serves the call, time of its guards."""
    from lampwork.verdict import worker

    found: dict[str, Any] = {"stats": worker.stats_of(function)}
    entry = worker.serving_entry(function, workload)
    found["kernels"] = 0 if entry is None or entry.host is None else entry.kernels
    with worker.reporting(found, "guard_error"):
        found["guard_us"] = worker.guard_time_us("lampwork", function, workload)
    return found


def reference_outputs(workload: Any) -> tuple[Any, str | None]:
    """The workload's outputs in float64, else in float32 without TF32 where a library has no float64; and which."""
    import torch

    from lampwork.verdict import zoo

    if workload.module is None:
        return None, None
    tensor_cores = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    try:
        for dtype, name in ((torch.float64, "float64"), (torch.float32, "float32")):
            try:
                module = copy.deepcopy(workload.module).to(dtype)
                args, kwargs = (zoo.convert(each, dtype=dtype) for each in (workload.args, workload.kwargs))
                return module(*args, **kwargs), name
            except (RuntimeError, TypeError, NotImplementedError):
                module = args = kwargs = None
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = tensor_cores
    return None, None


def varied(args: tuple[Any, ...], count: int) -> list[tuple[Any, ...]]:
    """`count` arguments of the same shapes, strides and kinds with other values."""
    import torch

    def change(value: Any, number: int) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        new = torch.empty_like(value)
        new.copy_(value * (1 - number / 16) if value.is_floating_point() else value.roll(number, -1))
        return new

    return [tuple(change(value, number) for value in args) for number in range(count)]


def verify_copy(output: Any) -> Any:
    """The tensors of nested outputs, in order, each copied: what they are now, whatever is written there later."""
    import torch

    from lampwork.verdict import verify

    return [leaf.clone() for _, leaf in verify.leaves(output) if isinstance(leaf, torch.Tensor)]


def own_errors(eager: Any, reference: Any) -> list[float]:
    """For each tensor of eager's outputs, the root mean square of its own error; empty without a reference."""
    import torch

    from lampwork.verdict import verify

    if reference is None:
        return []
    pairs = zip(verify.leaves(eager), verify.leaves(reference))
    return [verify.rmse(ours, exact) for (_, ours), (_, exact) in pairs if isinstance(ours, torch.Tensor)]


def keep_outputs(
    function: Callable[..., Any], inputs: list[tuple[Any, ...]], kwargs: dict, eager: list, noise: list[float]
) -> dict:
    """A plain loop that keeps every output: is each what it was when it was returned, and what eager computes?

    Values are judged by `allclose`, or else by their root mean square difference from eager's: at most twice that of
    the first output, or four times eager's own error on the first inputs (`noise`), which is what an output accepted by
    the rule for half types may differ.
    """
    import torch

    from lampwork.verdict import verify

    kept: list[Any] = []
    copies: list[list[Any]] = []
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
    import torch

    return torch.equal(first, second) or bool(((first == second) | (first.isnan() & second.isnan())).all())


def run_overhead(job: Job) -> dict[str, Any]:
    """Median microseconds of a call that computes almost nothing: launches are asynchronous, in rows of 500."""
    import torch

    from lampwork.verdict import device, worker

    function = lambda x: (x + 1) * 2
    x = torch.arange(8, dtype=getattr(torch, job.dtype)).to(job.device)
    columns: dict[str, dict[str, Any]] = {name: {} for name in job.columns}
    compiled: dict[str, Callable[..., Any]] = {}
    with grad_mode(job.grad_mode):
        for column in job.columns:
            say(job, column, "compiling")
            with worker.reporting(columns[column]):
                made = compile_column(job, column, function)
                for _ in range(WARM_UP):
                    if not torch.equal(made(x), function(x)):
                        raise AssertionError(f"{column} computed {made(x)} instead of {function(x)}")
                compiled[column] = made
        say(job, "eager", "timing in turns")
        calls = {name: lambda f=made: f(x) for name, made in compiled.items()}
        timings = device.measure_in_turns(calls, job.device, seconds=min(job.seconds, 2.0), min_rounds=10, calls=500)
        for name, timing in timings.items():
            columns[name]["call_us"] = timing.wall.median_ms * 1e3
            columns[name]["spread"] = timing.wall.spread
            if is_ours(name):
                with worker.reporting(columns[name], "stats_error"):
                    columns[name]["stats"] = worker.stats_of(compiled[name])
    return {"columns": columns}


@contextlib.contextmanager
def clocked(spent: dict[str, float], name: str) -> Any:
    """Add the block's seconds to `spent`: where the time of a benchmark goes is part of its report."""
    started = time.perf_counter()
    try:
        yield
    finally:
        spent[name] = spent.get(name, 0.0) + time.perf_counter() - started


if __name__ == "__main__":
    main(sys.argv[1])
