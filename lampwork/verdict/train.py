"""`lampwork bench --task train`: whole training steps, eager, by torch.compile and by lampwork, in one run.

Carried out as `modes.py` does it: a fresh process for each part, made of one that has torch loaded, and a record that a
run goes on with. This module imports no torch.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import signal
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from lampwork.verdict import modes
from lampwork.verdict.cases import Case, training_cases
from lampwork.verdict.train_worker import COLUMNS, Job


@dataclass(frozen=True)
class Plan:
    """What a run was asked for."""

    cases: tuple[Case, ...]
    columns: tuple[str, ...]
    started: tuple[str, ...]
    device: str
    dtype: str
    mode: str | None
    steps: int
    optimizer: str
    dropout: bool
    seconds: float
    min_rounds: int
    repeats: int
    timeout: float
    threads: int | None
    compiler: str
    peer_backend: str

    worker: ClassVar[str] = "train_worker.py"
    overhead: ClassVar[bool] = False

    def job(self, kind: str, case: Case, columns: tuple[str, ...], result: str, progress: str) -> Job:
        """What one process is told to do."""
        return Job(
            kind=kind,
            model=case.model,
            size=case.size,
            columns=columns,
            result=result,
            progress=progress,
            device=self.device,
            dtype=self.dtype,
            mode=self.mode,
            steps=self.steps,
            optimizer=self.optimizer,
            dropout=self.dropout,
            seconds=self.seconds,
            min_rounds=self.min_rounds,
            threads=self.threads,
            compiler=self.compiler,
            peer_backend=self.peer_backend,
        )

    def digest(self) -> str:
        """Changes with what bears on a figure; not with which cases run and which columns are started."""
        same = {key: value for key, value in asdict(self).items() if key not in ("cases", "started")}
        return hashlib.sha256(json.dumps({"task": "train", **same}, sort_keys=True).encode()).hexdigest()[:12]


def make_plan(arguments: argparse.Namespace) -> Plan:
    """The plan for parsed arguments of `lampwork bench --task train`."""
    on_gpu = arguments.device == "cuda"
    size = arguments.size or ("gpu" if on_gpu else "full")
    columns = tuple(column for column in COLUMNS if column != "peer" or not arguments.no_peer)
    ours = tuple(column for column in columns if column.startswith("lampwork"))
    starts = "none" if arguments.no_start else arguments.starts
    return Plan(
        cases=tuple(case for model in arguments.models for case in training_cases(model, size)),
        columns=columns,
        started={"none": (), "ours": ours}.get(starts, columns),
        device=arguments.device,
        dtype=arguments.dtype or ("bfloat16" if on_gpu else "float32"),
        mode=arguments.mode[0] if arguments.mode else None,
        steps=arguments.steps,
        optimizer=arguments.optimizer,
        dropout=arguments.dropout,
        seconds=arguments.seconds if arguments.seconds is not None else 4.0 if on_gpu else 8.0,
        min_rounds=arguments.min_rounds,
        repeats=arguments.repeats,
        timeout=arguments.timeout or (200.0 if on_gpu else 1200.0),
        threads=arguments.threads,
        compiler=arguments.compiler,
        peer_backend=arguments.peer_backend,
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure, print the tables; 0 if lampwork's numbers were accepted, 1 if not, 2 if misused, 3 if out of time."""
    from lampwork.verdict import train_report

    if len(arguments.mode or ()) > 1 or arguments.peer_mode:
        print("lampwork bench: --task train measures one mode at a time, the same for both compilers", file=sys.stderr)
        return 2
    if arguments.dtype == "float64" or arguments.steps < 2:
        print("lampwork bench: --task train wants --dtype of 32 or 16 bits and at least 2 --steps", file=sys.stderr)
        return 2
    plan = make_plan(arguments)
    if plan.device == "cuda" and (missing := modes.no_gpu()):
        print(f"lampwork bench: --device cuda: {missing}", file=sys.stderr)
        return 2
    record = modes.Record(arguments.json, plan.digest(), modes.source_digest(), arguments.resume, arguments.any_source)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    deadline = time.monotonic() + arguments.budget if arguments.budget else None
    left = modes.measure_all(plan, record, deadline)
    results = assemble(plan, record)
    print(train_report.text(results))
    if left:
        print(f"out of time, not measured: {', '.join(left)}; run it again with --resume", file=sys.stderr)
        return modes.OUT_OF_TIME
    return 0 if train_report.accepted(results) else 1


def assemble(plan: Plan, record: modes.Record) -> dict[str, Any]:
    """All that is known of the plan's cases: the plan, the machine, and by case what was found for each column."""
    models: dict[str, Any] = {}
    environment = None
    for case in plan.cases:
        steady = record.get(case.name, "steady")
        starts = {column: record.get(case.name, "start", column) for column in plan.started}
        if not steady and not any(starts.values()):
            continue
        columns: dict[str, Any] = {column: dict(steady.get("columns", {}).get(column, {})) for column in plan.columns}
        for column, found in starts.items():
            if "error" in found:
                columns[column]["start_error"] = found["error"]
            wanted = ("cold_seconds", "warm_seconds", "peak_mib", "held_mib")
            columns[column] |= {key: found[key] for key in wanted if key in found}
            if "cold" in found:
                environment = environment or found["cold"][0].get("environment")
                stats = found["cold"][0].get("stats") or {}
                columns[column]["stages"] = stats.get("compile_seconds", {})
        environment = environment or steady.get("environment")
        models[case.name] = {"columns": columns, "reference": steady.get("reference"), "measured": bool(steady)}
    return {"plan": asdict(plan), "environment": environment, "models": models}
