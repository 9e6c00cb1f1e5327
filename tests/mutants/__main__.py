"""Seeds each fault of the catalogue, runs the tests of its stage, and prints what caught it.

Exit status 1 where fewer than `--least` of 100 faults are caught, or a fault's text is no longer in its file.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.mutants import catalogue
from tests.mutants.checks import CHECKS
from tests.mutants.fault import ROOT, Fault

#: A run that takes this long hangs: the checks of each stage take a small part of it.
TIMEOUT_SECONDS = 300


@dataclass(frozen=True)
class Outcome:
    """`caught_by`: the first test that failed; empty where all passed."""

    fault: Fault | None
    caught_by: str
    seconds: float


def faults(names: Sequence[str] = ()) -> list[Fault]:
    """All faults, or those of the stages and names given. Raises SystemExit for a name that is none."""
    found: list[Fault] = []
    for each in pkgutil.iter_modules(catalogue.__path__):
        found += importlib.import_module(f"{catalogue.__name__}.{each.name}").FAULTS
    known = {fault.name for fault in found} | {fault.stage for fault in found}
    unknown = sorted(set(names) - known)
    if unknown:
        raise SystemExit(f"no fault or stage is called {', '.join(unknown)}")
    return [fault for fault in found if not names or fault.name in names or fault.stage in names]


def run_checks(fault: Fault | None, stage: str, log: Path) -> int:
    """The exit status of pytest over the checks of `stage`, with `fault` seeded. Runs in a forked process."""
    os.setsid()
    with log.open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    if fault is not None:
        from tests.mutants import overlay

        overlay.install(fault.module, fault.source())
    import pytest

    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout=120", "--hypothesis-seed=0"]
    return int(pytest.main([*options, *CHECKS[stage]]))


def start(fault: Fault | None, stage: str, log: Path) -> int:
    """The id of a process that runs the checks."""
    process = os.fork()
    if process:
        return process
    status = 3
    try:
        status = run_checks(fault, stage, log)
    except BaseException as error:  # a fault that keeps lampwork from being imported
        print(f"{type(error).__name__}: {error}", flush=True)
    os._exit(status)


def what_failed(log: Path, status: int) -> str:
    """The first failing test named in a log of pytest."""
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    if not os.WEXITSTATUS(status):
        return ""
    text = log.read_text(errors="replace")
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
    if found:
        return found.group(1)
    lines = text.strip().splitlines()
    return lines[-1][:100] if lines else f"status {os.WEXITSTATUS(status)}"


def outcomes(chosen: Sequence[tuple[Fault | None, str]], jobs: int, folder: Path) -> Iterator[Outcome]:
    """Each fault's outcome as its run ends, `jobs` at a time."""
    waiting = list(reversed(chosen))
    running: dict[int, tuple[Fault | None, Path, float]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                fault, stage = waiting.pop()
                log = folder / f"{fault.name if fault else 'no-fault-' + stage}.log"
                running[start(fault, stage, log)] = (fault, log, time.monotonic())
            process, status = os.waitpid(-1, os.WNOHANG)
            if process:
                fault, log, began = running.pop(process)
                yield Outcome(fault, what_failed(log, status), time.monotonic() - began)
                continue
            for each, (fault, _, began) in list(running.items()):
                if time.monotonic() - began > TIMEOUT_SECONDS:
                    os.killpg(each, signal.SIGKILL)
                    os.waitpid(each, 0)
                    del running[each]
                    yield Outcome(fault, "hangs", time.monotonic() - began)
            time.sleep(0.05)
    finally:
        for each in running:
            os.killpg(each, signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="stages, or names of faults (all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at a time (one for each core)")
    parser.add_argument("--least", type=float, default=95.0, help="faults of 100 that must be caught (95)")
    parser.add_argument("--logs", type=Path, help="keep the output of each run in this folder")
    options = parser.parse_args()
    chosen = faults(options.names)
    stale = [str(error) for error in map(_stale, chosen) if error]
    os.chdir(ROOT)
    os.environ.update(OMP_NUM_THREADS="1")
    import hypothesis  # noqa: F401  # loaded once, for all runs
    import pytest  # noqa: F401
    import torch  # noqa: F401

    console = Console()
    stages = sorted({fault.stage for fault in chosen})
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with tempfile.TemporaryDirectory() as made, Progress(*columns, console=console) as progress:
        folder = options.logs or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        task = progress.add_task("checks without a fault", total=len(stages))
        for sound in outcomes([(None, stage) for stage in stages], options.jobs, folder):
            progress.advance(task)
            if sound.caught_by:
                console.print(f"[red]the checks fail without a fault: {sound.caught_by}")
                return 1
        task = progress.add_task("faults", total=len(chosen))
        found = []
        for each in outcomes([(fault, fault.stage) for fault in chosen], options.jobs, folder):
            found.append(each)
            progress.advance(task)
            if not each.caught_by:
                progress.console.print(f"[red]not caught: {each.fault.name} ({each.fault.what})")  # type: ignore[union-attr]
    return report(console, chosen, found, stale, options.least)


def _stale(fault: Fault) -> ValueError | SyntaxError | None:
    try:
        compile(fault.source(), fault.file, "exec")
    except (ValueError, SyntaxError) as error:
        return error
    return None


def report(console: Console, chosen: Sequence[Fault], found: Sequence[Outcome], stale: Sequence[str], least: float) -> int:
    """Prints what caught each fault, and the share of each stage; the exit status."""
    by_name = {each.fault.name: each for each in found if each.fault is not None}
    table = Table("fault", "stage", "caught by", "s")
    for fault in chosen:
        outcome = by_name[fault.name]
        caught = outcome.caught_by or "[red]NOT CAUGHT[/red]: " + fault.what
        table.add_row(fault.name, fault.stage, caught, f"{outcome.seconds:.0f}")
    console.print(table)
    shares = Table("stage", "faults", "caught")
    for stage in sorted({fault.stage for fault in chosen}):
        own = [by_name[fault.name] for fault in chosen if fault.stage == stage]
        shares.add_row(stage, str(len(own)), str(sum(bool(each.caught_by) for each in own)))
    console.print(shares)
    caught = sum(bool(each.caught_by) for each in found)
    share = 100 * caught / max(len(found), 1)
    console.print(f"{caught} of {len(found)} faults caught ({share:.1f}%)")
    for text in stale:
        console.print(f"[red]{text}")
    return 1 if stale or share < least else 0


if __name__ == "__main__":
    sys.exit(main())
