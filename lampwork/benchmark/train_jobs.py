"""What `lampwork bench --task train` measures. Columns are

  eager             nothing is compiled
  peer              the model by `torch.compile`; backward, clipping and optimizer are eager's
  lampwork:module   the same by `lampwork.compile`
  lampwork:step     the function of the whole step by `lampwork.compile`

and `Job.kind` is `start`, the first step of one column and its memory, or `steady`, every column in turns, and whether
they train as eager does.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from lampwork import _torch
from lampwork.benchmark import device, measure, training
from lampwork.benchmark.columns import compile_by, is_ours, reporting, stats_of
from lampwork.benchmark.job import Job
from lampwork.benchmark.record import Found
from lampwork.benchmark.train import Plan
from lampwork.verdict import verify

LEAST_TELLING = 100  # tolerances by which eager's own first gradients may err before its type tells too little
STEPS_IN_DOUBLE = 2  # the first makes the optimizer's state, the second finds it
WARM_UP = 4  # steps of a start: the first ones make the optimizer's state, find what varies, capture CUDA graphs


def make_trainer(job: Job[Plan], column: str, workload: Any, dtype: torch.dtype | None = None) -> Any:
    """A copy of the workload's model that is trained as the named column does it; all of it in `dtype`, if given."""
    kind = column.partition(":")[0]
    by_column = None if kind == "eager" else lambda f: compile_by(kind, f, job.settings, job.settings.mode)
    whole_step = column == "lampwork:step"
    autocast = None if job.settings.dtype == "float32" or dtype is not None else getattr(torch, job.settings.dtype)
    return training.Trainer(
        workload,
        job.settings.device,
        optimizer=job.settings.optimizer,
        autocast=autocast,
        dtype=dtype or torch.float32,
        compile_model=None if whole_step else by_column,
        compile_step=by_column if whole_step else None,
    )


def run_start(job: Job[Plan]) -> Found:
    """Seconds of the first steps of one column in this fresh process, and memory at the peak of the steps after them.

    Two steps have run eagerly on a copy: what the vendor's libraries do at their first use is not the compiler's.
    """
    (column,) = job.columns
    job.say(column, "building the model")
    workload = training.prepare(job.model, device=job.settings.device, size=job.size, dropout=job.settings.dropout)
    call_seconds = []
    first = make_trainer(job, "eager", workload)
    for _ in range(2):
        first()
    device.synchronise(job.settings.device)
    del first
    gc.collect()
    reserved = device.reserved_mib(job.settings.device)
    resident, _ = measure.resident_mib()
    job.say(column, "first step")
    for number in range(WARM_UP):
        started = time.perf_counter()
        if number == 0:
            trainer = make_trainer(job, column, workload)
        trainer()
        device.synchronise(job.settings.device)
        call_seconds.append(time.perf_counter() - started)
    job.say(column, "memory")
    gc.collect()
    counts: Found = {}
    if job.settings.device == "cpu":
        separate = measure.reset_peak_memory()
        for _ in range(2):
            trainer()
        now, peak = measure.resident_mib()
        counts["peak_mib"], counts["held_mib"] = (peak if separate else None), now - resident
    else:
        counts["peak_mib"] = device.peak_mib(trainer, job.settings.device)
        counts["held_mib"] = (device.reserved_mib(job.settings.device) or 0.0) - (reserved or 0.0)
    if is_ours(column):
        with reporting(counts, "stats_error"):
            counts["stats"] = stats_of(trainer.compiled)
    return {"call_seconds": call_seconds, **counts}


def run_steady(job: Job[Plan]) -> Found:
    """What each column's steps come to, and their interleaved times; a column that raises is reported."""
    job.say("eager", "building the model")
    workload = training.prepare(job.model, device=job.settings.device, size=job.size, dropout=job.settings.dropout)
    columns: dict[str, Found] = {name: {} for name in job.columns}
    trainers: Found = {}
    job.say("eager", "reference")
    reference, precision = (None, None) if job.settings.dropout else reference_outcome(job, workload)
    expected = judge = None
    for column in job.columns:
        job.say(column, "compiling" if column != "eager" else "training")
        with reporting(columns[column]):
            trainer = make_trainer(job, column, workload)
            outcome = training.train(trainer, job.settings.steps)
            expected = outcome if column == "eager" else expected
            assert expected is not None
            if not job.settings.dropout:  # else each column draws masks of its own
                judge = judge or Judge(job, workload, expected, reference, precision)
                columns[column]["verified"] = judge(column, outcome)
            columns[column]["last_loss"] = outcome.losses[-1]
            trainers[column] = trainer
        trainer = outcome = None  # type: ignore[assignment]
        gc.collect()
    expected = reference = judge = None
    # What changes from step to step (a schedule, a state that was made) has shown itself by now.
    before = {name: recompiles(trainer) for name, trainer in trainers.items() if is_ours(name)}
    job.say("eager", "timing in turns")
    few = job.settings.device == "cpu"
    timings = device.measure_in_turns(
        trainers,
        job.settings.device,
        seconds=job.settings.seconds,
        min_rounds=job.settings.min_rounds,
        least_calls=1 if few else 3,
        warmup_rounds=1 if few else 2,
    )
    for name, timing in timings.items():
        columns[name]["timing"] = timing.as_dict()
    for name, count in before.items():
        with reporting(columns[name], "stats_error"):
            columns[name]["stats"] = stats_of(trainers[name].compiled)
            columns[name]["late_recompiles"] = recompiles(trainers[name]) - count
    return {"columns": columns, "reference": precision, "description": workload.description}


class Judge:
    """Whether columns train as eager does: `training.compare` with what it asks for made once and for all columns."""

    def __init__(
        self, job: Job[Plan], workload: Any, eager: training.Outcome, reference: Any, precision: str | None
    ) -> None:
        self.job = job
        self.workload = workload
        self.eager = eager
        self.reference = reference
        self.has_double = precision == "float64"
        self.start = training.parameters_of(workload.module)
        self.nearby = training.Nearby(
            lambda: self._eager("eager, a last bit away"), job.settings.steps, reference or eager, self.start
        )
        self.in_double: tuple[training.Outcome, training.Nearby] | None = None

    def __call__(self, column: str, outcome: training.Outcome) -> Found:
        """The verdict on a column.

        Where rounding alone makes a hundredth of eager's first gradients (in float32), an error of that size would
        pass: columns of ours are then trained in float64, too, and have to be right there.
        """
        dtype = getattr(torch, self.job.settings.dtype)
        found = training.compare(outcome, self.eager, self.reference, self.start, dtype, self.nearby)
        noise = found["errors"]["first_gradients"][1]
        if is_ours(column) and self.has_double and noise > LEAST_TELLING * verify.TOLERANCE[dtype]:
            found["float64"] = in_double = self._judge_in_double(column)
            found["reasons"] += [f"in float64: {reason}" for reason in in_double["reasons"]]
            found["accepted"] = not found["reasons"]
        return found

    def _judge_in_double(self, column: str) -> Found:
        double = torch.float64
        if self.in_double is None:
            eager = training.train(self._eager("eager in float64", double), STEPS_IN_DOUBLE)
            make = partial(self._eager, "eager in float64, a last bit away", double)
            self.in_double = eager, training.Nearby(make, STEPS_IN_DOUBLE, eager, self.start)
        eager, nearby = self.in_double
        self.job.say(column, "in float64")
        ours = training.train(make_trainer(self.job, column, self.workload, double), STEPS_IN_DOUBLE)
        return training.compare(ours, eager, None, self.start, double, nearby)

    def _eager(self, said: str, dtype: torch.dtype | None = None) -> Any:
        self.job.say("eager", said)
        return make_trainer(self.job, "eager", self.workload, dtype)


def recompiles(trainer: Any) -> int:
    """How often a column of ours has captured a call so far."""
    found: Found = {}
    with reporting(found):  # told with the statistics, a moment later
        found = stats_of(trainer.compiled) or {}
    return found.get("captures", 0)


def reference_outcome(job: Job[Plan], workload: Any) -> tuple[Any, str | None]:
    """The outcome of eager steps in float64, else in float32 without TF32 where a library has no float64; and which."""
    with _torch.exact_products():
        for dtype, name in ((torch.float64, "float64"), (torch.float32, "float32")):
            trainer = None
            try:
                trainer = training.Trainer(workload, job.settings.device, optimizer="plain", dtype=dtype)
                return training.train(trainer, job.settings.steps), name
            except (RuntimeError, TypeError, NotImplementedError):
                continue
    return None, None


JOBS: dict[str, Callable[[Job], Found]] = {"start": run_start, "steady": run_steady}
