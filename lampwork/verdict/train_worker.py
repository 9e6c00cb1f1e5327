"""One measurement of `lampwork bench --task train`, in a process that `fork_server.py` has made for it.

Run as a script with the path of a job as its argument; writes its result as JSON. Columns are

  eager             nothing is compiled
  peer              the model by `torch.compile`; backward, clipping and optimizer are eager's
  lampwork:module   the same by `lampwork.compile`
  lampwork:step     the function of the whole step by `lampwork.compile`

Jobs (`Job.kind`): `start`, the first step of one column and its memory; `steady`, every column in turns, and whether
they train as eager does. lampwork is imported inside functions: its own import is part of what a start costs.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LIBRARIES = ("torch._dynamo", "torch._inductor", "sympy", "triton", "llvmlite", "lampwork")
COLUMNS = ("eager", "peer", "lampwork:module", "lampwork:step")
WARM_UP = 4  # steps of a start: the first ones make the optimizer's state, find what varies, capture CUDA graphs


@dataclass(frozen=True)
class Job:
    """What one process does; every field is plain JSON."""

    kind: str
    model: str
    size: str
    columns: tuple[str, ...]
    result: str
    progress: str
    device: str = "cpu"
    dtype: str = "float32"
    mode: str | None = None
    steps: int = 5
    optimizer: str = "fused"
    dropout: bool = False
    seconds: float = 8.0
    min_rounds: int = 8
    threads: int | None = None
    compiler: str = "lampwork:compile"
    peer_backend: str = "inductor"


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
    if any(column.startswith("lampwork") for column in job.columns):
        try:
            importlib.import_module(job.compiler.partition(":")[0])
        except Exception as error:  # reported per column; the others can still be measured
            import_error = repr(error)
    result: dict[str, Any] = {"import_seconds": time.perf_counter() - started, "import_error": import_error}
    result["loaded_before"] = loaded
    result.update({"start": run_start, "steady": run_steady}[job.kind](job))
    from lampwork.verdict import device, worker

    result["environment"] = {**worker.environment(torch), **device.describe(job.device)}
    with open(job.result, "w") as file:
        json.dump(result, file)


def say(job: Job, column: str, step: str) -> None:
    """Leave word of what the process is doing, for its parent to show, or to name after a crash."""
    with open(job.progress, "a") as file:
        file.write(json.dumps({"column": column, "step": step}) + "\n")


def make_trainer(job: Job, column: str, workload: Any) -> Any:
    """A copy of the workload's model that is trained as the named column does it."""
    import torch

    from lampwork.verdict import training

    compile_model: Callable[[Any], Any] | None = None
    compile_step: Callable[[Any], Any] | None = None
    if column == "peer":
        compile_model = lambda module: torch.compile(module, mode=job.mode, backend=job.peer_backend)
    elif column != "eager":
        module, _, name = job.compiler.partition(":")
        compiler = getattr(importlib.import_module(module), name)
        ours = lambda function: compiler(function, mode=job.mode)
        compile_model, compile_step = (ours, None) if column == "lampwork:module" else (None, ours)
    autocast = None if job.dtype == "float32" else getattr(torch, job.dtype)
    return training.Trainer(
        workload,
        job.device,
        optimizer=job.optimizer,
        autocast=autocast,
        compile_model=compile_model,
        compile_step=compile_step,
    )


def run_start(job: Job) -> dict[str, Any]:
    """Seconds of the first steps of one column in this fresh process, and memory at the peak of the steps after them.

    Two steps have run eagerly on a copy: what the vendor's libraries do at their first use is not the compiler's.
    """
    from lampwork.verdict import device, measure, training, worker

    (column,) = job.columns
    say(job, column, "building the model")
    workload = training.prepare(job.model, device=job.device, size=job.size, dropout=job.dropout)
    call_seconds = []
    first = make_trainer(job, "eager", workload)
    for _ in range(2):
        first()
    device.synchronise(job.device)
    del first
    gc.collect()
    reserved = device.reserved_mib(job.device)
    resident, _ = measure.resident_mib()
    say(job, column, "first step")
    for number in range(WARM_UP):
        started = time.perf_counter()
        if number == 0:
            trainer = make_trainer(job, column, workload)
        trainer()
        device.synchronise(job.device)
        call_seconds.append(time.perf_counter() - started)
    say(job, column, "memory")
    gc.collect()
    counts: dict[str, Any] = {}
    if job.device == "cpu":
        separate = measure.reset_peak_memory()
        for _ in range(2):
            trainer()
        now, peak = measure.resident_mib()
        counts["peak_mib"], counts["held_mib"] = (peak if separate else None), now - resident
    else:
        counts["peak_mib"] = device.peak_mib(trainer, job.device)
        counts["held_mib"] = (device.reserved_mib(job.device) or 0.0) - (reserved or 0.0)
    if column.startswith("lampwork"):
        with worker.reporting(counts, "stats_error"):
            counts["stats"] = worker.stats_of(trainer.compiled)
    return {"call_seconds": call_seconds, **counts}


def run_steady(job: Job) -> dict[str, Any]:
    """What each column's steps come to, and their interleaved times; a column that raises is reported."""
    import torch

    from lampwork.verdict import device, training, worker

    say(job, "eager", "building the model")
    workload = training.prepare(job.model, device=job.device, size=job.size, dropout=job.dropout)
    start = {name: value.detach().cpu().clone() for name, value in workload.module.named_parameters()}
    dtype = getattr(torch, job.dtype)
    columns: dict[str, dict[str, Any]] = {name: {} for name in job.columns}
    trainers: dict[str, Any] = {}
    say(job, "eager", "reference")
    reference, precision = (None, None) if job.dropout else reference_outcome(job, workload)
    expected = None
    for column in job.columns:
        say(job, column, "compiling" if column != "eager" else "training")
        with worker.reporting(columns[column]):
            trainer = make_trainer(job, column, workload)
            outcome = training.train(trainer, job.steps)
            expected = outcome if column == "eager" else expected
            assert expected is not None
            if not job.dropout:  # else each column draws masks of its own
                columns[column]["verified"] = training.compare(outcome, expected, reference, start, dtype)
            columns[column]["last_loss"] = outcome.losses[-1]
            trainers[column] = trainer
        trainer = outcome = None  # type: ignore[assignment]
        gc.collect()
    expected = reference = None
    # What changes from step to step (a schedule, a state that was made) has shown itself by now.
    before = {name: recompiles(trainer) for name, trainer in trainers.items() if name.startswith("lampwork")}
    say(job, "eager", "timing in turns")
    few = job.device == "cpu"
    timings = device.measure_in_turns(
        trainers,
        job.device,
        seconds=job.seconds,
        min_rounds=job.min_rounds,
        least_calls=1 if few else 3,
        warmup_rounds=1 if few else 2,
    )
    for name, timing in timings.items():
        columns[name]["timing"] = timing.as_dict()
    for name, count in before.items():
        with worker.reporting(columns[name], "stats_error"):
            columns[name]["stats"] = worker.stats_of(trainers[name].compiled)
            columns[name]["late_recompiles"] = recompiles(trainers[name]) - count
    return {"columns": columns, "reference": precision, "description": workload.description}


def recompiles(trainer: Any) -> int:
    """How often a column of ours has captured a call so far."""
    from lampwork.verdict import worker

    found: dict[str, Any] = {}
    with worker.reporting(found):  # told with the statistics, a moment later
        found = worker.stats_of(trainer.compiled) or {}
    return found.get("captures", 0)


def reference_outcome(job: Job, workload: Any) -> tuple[Any, str | None]:
    """The outcome of eager steps in float64, else in float32 without TF32 where a library has no float64; and which."""
    import torch

    from lampwork.verdict import training

    with training.exact_products():
        for dtype, name in ((torch.float64, "float64"), (torch.float32, "float32")):
            trainer = None
            try:
                trainer = training.Trainer(workload, job.device, optimizer="plain", dtype=dtype)
                return training.train(trainer, job.steps), name
            except (RuntimeError, TypeError, NotImplementedError):
                continue
    return None, None


if __name__ == "__main__":
    main(sys.argv[1])
