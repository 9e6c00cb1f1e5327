"""`lampwork bench --task train`: whole training steps, eager, by torch.compile and by lampwork, in one run.

`train_jobs.py` says what the columns are and what is measured of them. This module imports no torch.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import ClassVar

from lampwork.benchmark import plan
from lampwork.benchmark.carry_out import carry_out
from lampwork.benchmark.cases import training_cases

COLUMNS = ("eager", "peer", "lampwork:module", "lampwork:step")


@dataclass(frozen=True, kw_only=True)
class Plan(plan.Plan):
    """What a run was asked for."""

    mode: str | None = None
    steps: int = 5
    optimizer: str = "fused"
    dropout: bool = False

    jobs: ClassVar[str] = "lampwork.benchmark.train_jobs"
    task: ClassVar[str] = "train"
    told_by_start: ClassVar[tuple[str, ...]] = ("cold_seconds", "warm_seconds", "peak_mib", "held_mib")


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
        overhead=False,
        timeout=arguments.timeout or (200.0 if on_gpu else 1200.0),
        threads=arguments.threads,
        compiler=arguments.compiler,
        peer_backend=arguments.peer_backend,
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure and print the tables; what `carry_out` gives."""
    from lampwork.benchmark import train_report

    if len(arguments.mode or ()) > 1 or arguments.peer_mode:
        print("lampwork bench: --task train measures one mode at a time, the same for both compilers", file=sys.stderr)
        return 2
    if arguments.dtype == "float64" or arguments.steps < 2:
        print("lampwork bench: --task train wants --dtype of 32 or 16 bits and at least 2 --steps", file=sys.stderr)
        return 2
    return carry_out(make_plan(arguments), arguments, train_report.text, train_report.accepted)
