"""Carrying out a plan: measures what its record does not hold, in time, and puts the answers together. No torch."""

from __future__ import annotations

import argparse
import compileall
import ctypes
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from lampwork.benchmark.cases import CLASSES
from lampwork.benchmark.cells import Cells
from lampwork.benchmark.plan import Plan
from lampwork.benchmark.processes import ForkServer
from lampwork.benchmark.record import ROOT, Found, Record, source_digest

OUT_OF_TIME = 3  # the exit status of a run that stopped at its budget


def carry_out(
    plan: Plan,
    arguments: argparse.Namespace,
    text: Callable[[Found], str],
    accepted: Callable[[Found], bool],
) -> int:
    """Measure, print the tables (`text`); 0 if lampwork's numbers were `accepted`, 1 if not, 2 if misused, 3 if out of
    time. `arguments` say where the record is and how long it may take."""
    if plan.device == "cuda" and (missing := no_gpu()):
        print(f"lampwork bench: --device cuda: {missing}", file=sys.stderr)
        return 2
    record = Record(arguments.json, plan.digest(), source_digest(), arguments.resume, arguments.any_source)
    # Ended from outside, it still stops its processes and removes their folders.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    deadline = time.monotonic() + arguments.budget if arguments.budget else None
    left = measure_all(plan, record, deadline)
    results = assemble(plan, record)
    print(text(results))
    if left:
        print(f"out of time, not measured: {', '.join(left)}; run it again with --resume", file=sys.stderr)
        return OUT_OF_TIME
    return 0 if accepted(results) else 1


def no_gpu() -> str:
    """Why no GPU can be used, or nothing."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver on this machine (libcuda.so.1)"
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return "the NVIDIA driver finds no GPU"
    return ""


def measure_all(plan: Plan, record: Record, deadline: float | None) -> list[str]:
    """Measure what the record does not hold; the cases that time did not suffice for."""
    todo = [(case, part, column) for case, part, column in plan.parts() if not record.get(case.name, part, column)]
    if not todo:
        return []
    # pip compiles the modules of what it installs, the peer's among them; a source checkout may not have been.
    compileall.compile_dir(ROOT / "lampwork", quiet=2)
    root = Path(tempfile.mkdtemp(prefix="lampwork-bench-"))
    servers: dict[tuple[str, ...], ForkServer] = {}
    left: dict[str, None] = {}
    longest: dict[str, float] = {}
    classes = tuple(dict.fromkeys(CLASSES[case.model] for case, _, _ in todo if case.model in CLASSES))
    try:
        for key in dict.fromkeys(classes if case.model in CLASSES else () for case, _, _ in todo):
            servers[key] = ForkServer(key, root)
        for server in servers.values():
            server.wait_ready()
        for case, part, column in todo:
            remaining = None if deadline is None else deadline - time.monotonic()
            if remaining is not None and remaining < max(10.0, 1.1 * longest.get(part, 0.0)):
                left[case.name] = None
                continue
            cells = Cells(plan, case, servers[classes if case.model in CLASSES else ()], root, remaining)
            started = time.monotonic()
            found = cells.start(column) if part == "start" else cells.every_column(part)
            seconds = time.monotonic() - started
            longest[part] = max(longest.get(part, 0.0), seconds)
            if cells.out_of_time:
                left[case.name] = None
                continue
            record.add(case.name, part, column, found, seconds)
            told = f"{case.name}  {part}  {column}".strip()
            print(f"{told}: {brief(found, part)} ({seconds:.0f} s)", file=sys.stderr, flush=True)
    finally:
        for server in servers.values():
            server.close()
        shutil.rmtree(root, ignore_errors=True)
    return list(left)


def brief(found: Found, part: str) -> str:
    """A part's result in a few words, for the line that is printed when it is done."""
    if "error" in found:
        return found["error"][:300]
    if part == "start":
        return f"cold {found['cold_seconds']:.2f} s, warm {found['warm_seconds']:.2f} s"
    words = []
    for column, values in found["columns"].items():
        if "error" in values:
            words.append(f"{column} FAILED {values['error'][:120]}")
        elif "timing" in values:
            words.append(f"{column} {values['timing']['median_ms']:.3f} ms")
        elif "call_us" in values:
            words.append(f"{column} {values['call_us']:.1f} us")
    return ", ".join(words)


def assemble(plan: Plan, record: Record) -> Found:
    """All that is known of the plan's cases: the plan, the machine, and by case what was found for each column."""
    models: Found = {}
    environment = None
    for case in plan.cases:
        steady = record.get(case.name, "steady")
        starts = {column: record.get(case.name, "start", column) for column in plan.started}
        if not steady and not any(starts.values()):
            continue
        columns: Found = {column: dict(steady.get("columns", {}).get(column, {})) for column in plan.columns}
        for column, found in starts.items():
            if "error" in found:
                columns[column]["start_error"] = found["error"]
            columns[column] |= {key: found[key] for key in plan.told_by_start if key in found}
            if "cold" in found:
                environment = environment or found["cold"][0].get("environment")
                columns[column]["stages"] = (found["cold"][0].get("stats") or {}).get("compile_seconds", {})
        environment = environment or steady.get("environment")
        models[case.name] = {"columns": columns, "reference": steady.get("reference"), "measured": bool(steady)}
    overhead = record.get("(tiny)", "overhead") if plan.overhead else {}
    environment = environment or overhead.get("environment")
    return {"plan": asdict(plan), "environment": environment, "overhead": overhead, "models": models}
