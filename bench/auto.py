"""Mode "auto" on the workloads of `bench.verdicts`: what a call takes after the trial, and while it is compiled beside.

    python -m bench.auto                                      all workloads: about 15 seconds each
    python -m bench.auto bert train-mlp --json results.json

Each workload has a process of its own, with an empty cache. Calls of mode "auto" are made until the trial is over; the
longest of them is compared with eager's typical call. Then eager, "auto" and the fixed mode "default" take turns.
"""

from __future__ import annotations

import argparse
import compileall
import gc
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench.verdict_workloads import BY_WORKLOAD, WORKLOADS

#: Rounds of turns after the trial, and about how long one turn of a way lasts.
ROUNDS, TURN_SECONDS = 15, 0.05
#: After which a trial counts as never ending, and how many calls are made at least.
TRIAL_SECONDS, TRIAL_CALLS = 60.0, 200


def one(name: str, device: str) -> dict[str, Any]:
    """What is measured in one process."""
    import lampwork

    case = BY_WORKLOAD[name].build(device)
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None

    def timed(function: Any, calls: int = 1) -> float:
        synchronize()
        began = time.perf_counter()
        for _ in range(calls):
            case.call(function)
        synchronize()
        return (time.perf_counter() - began) / calls

    for _ in range(5):
        case.call(case.function)
    before = [timed(case.function) for _ in range(30)]
    eager = statistics.median(before)
    auto = lampwork.compile(case.function, mode="auto")
    gc.collect()  # as in a program that runs for long: what imports left is none of these calls'
    calls = []
    end = time.perf_counter() + TRIAL_SECONDS
    while time.perf_counter() < end:
        calls.append(timed(auto))
        choices = lampwork.stats(auto)["choices"]
        if choices and all(each.way is not None for each in choices):
            break
        if not choices and len(calls) >= TRIAL_CALLS and lampwork.stats(auto)["fallbacks"]:
            break  # it was given up
    ways = {"eager": case.function, "auto": auto, "default": lampwork.compile(case.function)}
    for function in ways.values():
        for _ in range(10):
            case.call(function)
    repeats = max(1, round(TURN_SECONDS / eager))
    turns: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(ROUNDS):
        for way in list(ways)[:: 1 if number % 2 else -1]:
            turns[way].append(timed(ways[way], repeats))
    beside_eager = statistics.median(one / other for one, other in zip(turns["auto"], turns["eager"]))
    best = min(("eager", "default"), key=lambda way: statistics.median(turns[way]))
    return {
        "eager": eager,
        "longest": max(calls),
        "longest_eager": max(before),
        "trial_calls": len(calls),
        "choices": [each.way for each in lampwork.stats(auto)["choices"]],
        "beside_eager": beside_eager,
        "beside_best": statistics.median(one / other for one, other in zip(turns["auto"], turns[best])),
        "best": best,
    }


def process(name: str, device: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="lampwork-auto-") as folder:
        environment = {
            **os.environ,
            "TRANSFORMERS_VERBOSITY": "error",
            "LAMPWORK_CACHE_DIR": folder,
            "LAMPWORK_CACHE_URL": "",
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode beside it
        command = [sys.executable, "-m", "bench.auto", "--one", name, "--device", device]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def tell(record: dict[str, Any], console: Console) -> None:
    table = Table(title="mode auto")
    for column in ("workload", "eager", "longest call beside a compile", "calls of the trial", "chosen"):
        table.add_column(column)
    for column in ("after it, of eager's time", "best fixed", "of its time"):
        table.add_column(column, justify="right")
    for name, found in record.items():
        if "error" in found:
            table.add_row(name, f"[red]{found['error'][:80]}")
            continue
        later = f"{found['longest'] * 1e3:.1f} ms (+{(found['longest'] - found['eager']) * 1e3:.1f})"
        chosen = ", ".join(dict.fromkeys(str(each) for each in found["choices"])) or "given up"
        table.add_row(name, f"{found['eager'] * 1e3:.3f} ms", later, str(found["trial_calls"]), chosen,
                      f"{found['beside_eager']:.3f}", found["best"], f"{found['beside_best']:.3f}")  # fmt: skip
    console.print(table)
    whole = [each for each in record.values() if "error" not in each]
    if not whole:
        return
    slower = [each["beside_eager"] for each in whole]
    mean = math.exp(statistics.fmean(math.log(1 / each["beside_best"]) for each in whole))
    delay = [1e3 * (each["longest"] - each["eager"]) for each in whole]
    console.print(f"{len(whole)} workloads. After the trial at most {max(slower):.3f} of eager's time (aim 1.02), "
                  f"{sum(each > 1.02 for each in slower)} above; {mean:.3f} of the best fixed mode's speed in the "
                  f"geometric mean (aim 0.97). The longest call beside a compile: eager's and {max(delay):.0f} ms, "
                  f"{statistics.median(delay):.0f} in the median (aim 30).")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.auto", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="those alone; default: all")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--json", type=Path, help="keep what was measured here, and go on from what is there")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    settings = parser.parse_args()
    if settings.one:
        print(json.dumps(one(settings.one, settings.device)))
        return 0
    unknown = [each for each in settings.workloads if each not in BY_WORKLOAD]
    if unknown:
        parser.error(f"no such workload: {', '.join(unknown)}; there are {', '.join(BY_WORKLOAD)}")
    names = settings.workloads or [each.name for each in WORKLOADS]
    record = json.loads(settings.json.read_text()) if settings.json and settings.json.exists() else {}
    compileall.compile_dir(Path(__file__).parents[1] / "lampwork", quiet=2)
    with Progress(console=Console(file=sys.stderr)) as progress:
        task = progress.add_task("", total=len(names))
        for name in names:
            progress.update(task, description=name)
            if name not in record:
                record[name] = process(name, settings.device)
                if settings.json:
                    settings.json.write_text(json.dumps(record))
            progress.advance(task)
    tell({name: record[name] for name in names}, Console())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
