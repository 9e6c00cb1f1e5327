"""`lampwork bench --device cuda`, or with several modes: eager, each mode of torch.compile and of lampwork in one run.

Columns are `eager`, `peer:MODE` (`torch.compile`), `lampwork:MODE` and `freeze:MODE`; `modes_jobs.py` says what is
measured of them. This module imports no torch.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import ClassVar

from lampwork.benchmark import plan
from lampwork.benchmark.carry_out import carry_out
from lampwork.benchmark.cases import cases


@dataclass(frozen=True, kw_only=True)
class Plan(plan.Plan):
    """What a run was asked for."""

    grad_mode: str = "no_grad"
    profile: bool = True

    jobs: ClassVar[str] = "lampwork.benchmark.modes_jobs"


def make_plan(arguments: argparse.Namespace) -> Plan:
    """The plan for parsed arguments of `lampwork bench`."""
    modes = list(dict.fromkeys(arguments.mode or ["default", "reduce-overhead"]))
    peer_modes = list(dict.fromkeys(arguments.peer_mode or modes))
    peer = [] if arguments.no_peer else [f"peer:{mode}" for mode in peer_modes]
    ours = [f"lampwork:{mode}" for mode in modes]
    freeze = [f"freeze:{mode}" for mode in modes] if arguments.freeze else []
    starts = "none" if arguments.no_start else arguments.starts
    groups = {"first": [peer[:1], ours[:1], freeze[:1]], "all": [peer, ours, freeze], "ours": [ours[:1], freeze[:1]]}
    size = arguments.size or ("gpu" if arguments.device == "cuda" else "full")
    return Plan(
        cases=tuple(case for model in arguments.models for case in cases(model, size)),
        columns=("eager", *peer, *ours, *freeze),
        started=tuple(column for group in groups.get(starts, []) for column in group),
        device=arguments.device,
        dtype=arguments.dtype or ("bfloat16" if arguments.device == "cuda" else "float32"),
        grad_mode=arguments.grad_mode,
        seconds=arguments.seconds if arguments.seconds is not None else 4.0,
        min_rounds=arguments.min_rounds,
        repeats=arguments.repeats,
        timeout=arguments.timeout or (150.0 if arguments.device == "cuda" else 1200.0),
        threads=arguments.threads,
        compiler=arguments.compiler,
        peer_backend=arguments.peer_backend,
        profile=not arguments.no_profile,
        overhead=not arguments.no_overhead,
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure and print the tables; what `carry_out` gives."""
    from lampwork.benchmark import modes_report

    return carry_out(make_plan(arguments), arguments, modes_report.text, modes_report.accepted)
