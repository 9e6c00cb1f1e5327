"""Are verdicts right? `lampwork.assess` is asked about programs of many kinds, and then the truth is measured.

    python -m bench.verdicts                                  all workloads: about 2 minutes each
    python -m bench.verdicts bert waits-2ms --rounds 3 --json results.json

The truth is exhaustive: every candidate is run in fresh processes with empty caches, by the code that a verdict would
tell the user to write, its start included; what so many calls take is the sum of its first ones and the mean of the
later ones. All processes keep the memory that they have used: glibc gives it back in some states of a process and not
in others, by which eager's time may double.

Told are: how often the sign is right (does compiling pay for so many calls?), how far break-even is off, and how much
longer the chosen way takes than the best (regret). Where the choice takes at most `LEVEL` longer than the best, the
sign is neither right nor wrong, and counts as right; how many are so is told. `--json` keeps what was measured, and
goes on from there.
"""

from __future__ import annotations

import argparse
import compileall
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench.verdict_workloads import BY_WORKLOAD, WORKLOADS
from lampwork.verdict.assess import KEEP_MEMORY

HORIZONS = (1, 10, 100, 1000, 10_000, 100_000)
#: What a verdict itself takes for level.
LEVEL = 0.01


@dataclass(frozen=True)
class Truth:
    """What one candidate takes: seconds of its first calls, in order, and of one later call; each per process."""

    runs: tuple[tuple[tuple[float, ...], float], ...]

    def total(self, calls: int) -> float:
        return statistics.median(sum(first[:calls]) + max(0, calls - len(first)) * later for first, later in self.runs)

    @property
    def later(self) -> float:
        return statistics.median(later for _, later in self.runs)

    @property
    def cost(self) -> float:
        """Seconds spent before calls ran at their later speed."""
        return statistics.median(sum(first) - len(first) * later for first, later in self.runs)


@dataclass(frozen=True)
class Judged:
    """One answer beside the truth. `off`: how far break-even is off, a share; None where one of them is not finite."""

    workload: str
    calls: int
    choice: str
    best: str
    right: bool
    level: bool
    regret: float
    lost: float
    spent: float
    off: float | None


def judge(workload: str, answer: dict[str, Any], truths: dict[str, Truth]) -> Judged:
    calls = answer["calls"]
    totals = {name: each.total(calls) for name, each in truths.items()}
    best = min(totals, key=lambda name: totals[name])
    pays = min(total for name, total in totals.items() if name != "eager") < totals["eager"]
    regret = totals[answer["choice"]] / totals[best] - 1
    level = regret <= LEVEL
    return Judged(
        workload, calls, answer["choice"], best, pays == answer["pays"] or level, pays != answer["pays"] and level,
        regret, totals[answer["choice"]] - totals[best], totals[best], _off(answer, truths),
    )  # fmt: skip


def _off(answer: dict[str, Any], truths: dict[str, Truth]) -> float | None:
    if answer["break_even"] is None or not math.isfinite(answer["break_even"]) or answer["subject"] not in truths:
        return None
    eager, ours = truths["eager"], truths[answer["subject"]]
    gain = eager.later - ours.later
    cost = ours.cost - eager.cost
    if gain <= 0 or cost <= 0:
        return None
    return abs(answer["break_even"] / (cost / gain) - 1)


# Measuring ------------------------------------------------------------------------------------------------------------


def process(order: dict[str, Any]) -> dict[str, Any]:
    """The answer of one fresh process with an empty cache, `{"error": ...}` where it failed.

    What an assessment keeps for a machine (the time that loading takes) is kept between processes.
    """
    with tempfile.TemporaryDirectory(prefix="lampwork-verdicts-") as folder:
        environment = {**os.environ, "TRANSFORMERS_VERBOSITY": "error"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode beside it
        environment.setdefault("GLIBC_TUNABLES", KEEP_MEMORY.partition("=")[2])
        if order["task"] == "run":
            environment["LAMPWORK_CACHE_DIR"] = folder
            environment["LAMPWORK_CACHE_URL"] = ""
        command = [sys.executable, "-m", "bench.verdict_process", json.dumps(order)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def measure(name: str, settings: argparse.Namespace, say: Any) -> dict[str, Any]:
    about = {"workload": name, "device": settings.device}
    answers = []
    for calls in settings.horizons:
        say(f"{name}: assessing for {calls:,} calls")
        assessed = process({"task": "assess", "calls": calls, "seconds": settings.seconds, **about})
        if "error" in assessed:
            return assessed
        answers.append(assessed["answer"])
    codes = {"eager": "", **assessed["codes"]}
    runs: dict[str, list[Any]] = {each: [] for each in codes}
    for number in range(settings.rounds):
        order_of_names = list(codes)
        random.Random(number).shuffle(order_of_names)
        for each in order_of_names:
            say(f"{name}: {each}, round {number + 1}")
            found = process({"task": "run", "code": codes[each], "seconds": settings.run_seconds,
                             "variables": assessed["variables"], **about})  # fmt: skip
            if "error" in found:
                return {"error": f"{each}: {found['error']}"}
            runs[each].append((found["first"], found["later"]))
    return {"answers": answers, "runs": runs}


# Telling --------------------------------------------------------------------------------------------------------------


def judged(record: dict[str, Any]) -> list[Judged]:
    found = []
    for name, measured in record.items():
        if "error" in measured:
            continue
        truths = {
            each: Truth(tuple((tuple(first), later) for first, later in runs))
            for each, runs in measured["runs"].items()
        }
        found += [judge(name, answer, truths) for answer in measured["answers"]]
    return found


def tell(record: dict[str, Any], console: Console) -> None:
    every = judged(record)
    table = Table(title="workloads")
    for column in ("workload", "kind"):
        table.add_column(column)
    horizons = sorted({each.calls for each in every})
    for calls in horizons:
        table.add_column(f"{calls:,} calls", justify="right")
    table.add_column("break-even off", justify="right")
    table.add_column("assessed in", justify="right")
    for name, measured in record.items():
        kind = BY_WORKLOAD[name].kind if name in BY_WORKLOAD else ""
        if "error" in measured:
            table.add_row(name, kind, f"[red]{measured['error'][:60]}")
            continue
        rows = {each.calls: each for each in every if each.workload == name}
        cells = [_cell(rows[calls]) if calls in rows else "" for calls in horizons]
        off = rows[max(rows)].off
        seconds = statistics.mean(each["seconds"] for each in measured["answers"])
        table.add_row(name, kind, *cells, "" if off is None else f"{off:.0%}", f"{seconds:.1f} s")
    console.print(table)
    if every:
        summary(every, record, console)


def _cell(one: Judged) -> str:
    mark = "[red]wrong[/] " if not one.right else ""
    return f"{mark}{'eager' if one.choice == 'eager' else one.choice} +{one.regret:.1%}"


def summary(every: list[Judged], record: dict[str, Any], console: Console) -> None:
    right = sum(each.right for each in every)
    level = sum(each.level for each in every)
    longest = {each.workload: each for each in every}  # the answer for most calls
    offs = [each.off for each in longest.values() if each.off is not None]
    lost, spent = sum(each.lost for each in every), sum(each.spent for each in every)
    table = Table(title=f"{len(longest)} workloads, {len(every)} answers")
    for column in ("", "measured", "aim"):
        table.add_column(column)
    table.add_row("sign right", f"{right} of {len(every)} ({right / len(every):.1%}), {level} of them level", "98%")
    if offs:
        table.add_row("break-even off, median", f"{statistics.median(offs):.0%} of {len(offs)}", "20%")
    table.add_row("regret, all time together", f"{lost / spent:.2%}", "2%")
    table.add_row("regret, mean of answers", f"{statistics.mean(each.regret for each in every):.2%}", "")
    failures = [text for each in record.values() for answer in each.get("answers", ()) for text in answer["failed"]]
    table.add_row("candidates that failed", str(len(failures)), "")
    console.print(table)
    for each in every:
        if not each.right:
            console.print(f"{each.workload}, {each.calls:,} calls: chose {each.choice}, best {each.best}, "
                          f"{each.regret:.1%} longer")  # fmt: skip
    for text in dict.fromkeys(failures):
        console.print(f"failed: {text}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.verdicts", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="those alone; default: all")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--horizons", type=int, nargs="+", default=HORIZONS, metavar="CALLS")
    parser.add_argument("--seconds", type=float, default=10.0, help="after which an assessment tries nothing new")
    parser.add_argument("--run-seconds", type=float, default=2.0, help="that a process runs for the truth")
    parser.add_argument("--rounds", type=int, default=2, help="processes for each candidate")
    parser.add_argument("--json", type=Path, help="keep what was measured here, and go on from what is there")
    settings = parser.parse_args()
    unknown = [each for each in settings.workloads if each not in BY_WORKLOAD]
    if unknown:
        parser.error(f"no such workload: {', '.join(unknown)}; there are {', '.join(BY_WORKLOAD)}")
    names = settings.workloads or [each.name for each in WORKLOADS]
    record = json.loads(settings.json.read_text()) if settings.json and settings.json.exists() else {}
    console = Console()
    compileall.compile_dir(Path(__file__).parents[1] / "lampwork", quiet=2)
    with Progress(console=Console(file=sys.stderr)) as progress:
        task = progress.add_task("", total=len(names))
        for name in names:
            if name not in record:
                record[name] = measure(name, settings, lambda text: progress.update(task, description=text))
                if settings.json:
                    settings.json.write_text(json.dumps(record))
            progress.advance(task)
    tell({name: record[name] for name in names}, console)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
