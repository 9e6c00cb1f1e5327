"""Seeds each fault of the catalogue, runs the tests of its stage, and prints what caught it.

The checks are run without a fault first: tests that fail then are named, and catch nothing. Exit status 1 where fewer
than `--least` of 100 faults are caught, or a fault's text is no longer in its file.
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

import hypothesis
from hypothesis import Phase
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.mutants import catalogue
from tests.mutants.checks import CHECKS
from tests.mutants.fault import ROOT, Fault

#: A run that takes this long hangs: the checks of each stage take a small part of it.
TIMEOUT_SECONDS = 300


@dataclass(frozen=True)
class Run:
    """Tests to run with a fault seeded, or with none. `left_out`: tests of them that are not run."""

    name: str
    fault: Fault | None
    checks: tuple[str, ...]
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """`failed`: the tests that failed, or what else ended the run; none where all passed. `seconds`: of processors."""

    run: Run
    failed: tuple[str, ...]
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


def run_checks(run: Run, log: Path) -> int:
    """The exit status of pytest, which stops at the first failure where a fault is seeded. Runs in a forked process."""
    os.setsid()
    with log.open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    options = ["-q", "-rfE", "-p", "no:cacheprovider", "-p", "no:xdist", "--timeout=120", "--hypothesis-seed=0"]
    options += [f"--deselect={name}" for name in run.left_out]
    if run.fault is not None:
        # The smallest example is of no use here.
        hypothesis.settings.register_profile("mutants", phases=[Phase.explicit, Phase.generate])
        hypothesis.settings.load_profile("mutants")
        from tests.mutants import overlay

        overlay.install(run.fault.module, run.fault.source())
        options.append("-x")
    import pytest

    return int(pytest.main([*options, *each_file(run.checks)]))


def each_file(checks: Sequence[str]) -> list[str]:
    """The checks with each folder as the files of tests in it: pytest would leave out a file that comes before its
    folder, and run it in the folder's place."""
    found: dict[str, None] = {}
    for path in checks:
        folder = ROOT / path.partition("::")[0]
        inside = sorted(folder.rglob("test_*.py")) if folder.is_dir() else ()
        found.update(dict.fromkeys([str(each.relative_to(ROOT)) for each in inside] or [path]))
    return list(found)


def start(run: Run, log: Path) -> int:
    """The id of a process that runs the checks."""
    process = os.fork()
    if process:
        return process
    status = 3
    try:
        status = run_checks(run, log)
    except BaseException as error:  # a fault that keeps lampwork from being imported
        print(f"{type(error).__name__}: {error}", flush=True)
    os._exit(status)


def what_failed(log: Path, status: int) -> tuple[str, ...]:
    """The failing tests that a log of pytest names, or how else the run ended."""
    if os.WIFSIGNALED(status):
        return (f"killed by {signal.Signals(os.WTERMSIG(status)).name}",)
    if not os.WEXITSTATUS(status):
        return ()
    text = log.read_text(errors="replace")
    found = re.findall(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE)
    if found:
        return tuple(found)
    lines = text.strip().splitlines()
    return (lines[-1][:100] if lines else f"status {os.WEXITSTATUS(status)}",)


def outcomes(chosen: Sequence[Run], jobs: int, folder: Path) -> Iterator[Outcome]:
    """Each run's outcome as it ends, `jobs` at a time."""
    waiting = list(reversed(chosen))
    running: dict[int, tuple[Run, Path, float]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                run = waiting.pop()
                log = folder / f"{run.name}.log"
                running[start(run, log)] = (run, log, time.monotonic())
            process, status, used = os.wait4(-1, os.WNOHANG)
            if process:
                run, log, _ = running.pop(process)
                yield Outcome(run, what_failed(log, status), used.ru_utime + used.ru_stime)
                continue
            for each, (run, _, began) in list(running.items()):
                if time.monotonic() - began > TIMEOUT_SECONDS:
                    os.killpg(each, signal.SIGKILL)
                    _, _, used = os.wait4(each, 0)
                    del running[each]
                    yield Outcome(run, ("hangs",), used.ru_utime + used.ru_stime)
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
    chosen = [fault for fault in chosen if _stale(fault) is None]
    os.chdir(ROOT)
    os.environ.update(OMP_NUM_THREADS="1")
    import pytest  # noqa: F401  # loaded once, for all runs
    import torch  # noqa: F401

    console = Console()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with tempfile.TemporaryDirectory() as made, Progress(*columns, console=console) as progress:
        folder = options.logs or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        paths: dict[str, list[str]] = {}
        for path in dict.fromkeys(path for fault in chosen for path in CHECKS[fault.stage]):
            paths.setdefault(path.partition("::")[0], []).append(path)
        task = progress.add_task("checks without a fault", total=len(paths))
        left_out: list[str] = []
        sound = [Run(f"no-fault-{path.replace('/', '-')}", None, tuple(own)) for path, own in paths.items()]
        seconds = 0.0
        for each in outcomes(sound, options.jobs, folder):
            left_out += each.failed
            seconds += each.seconds
            progress.advance(task)
        for name in left_out:
            console.print(f"[yellow]fails without a fault, and catches none: {name}")
        task = progress.add_task("faults", total=len(chosen))
        runs = [Run(fault.name, fault, tuple(CHECKS[fault.stage]), tuple(left_out)) for fault in chosen]
        found = []
        for each in outcomes(runs, options.jobs, folder):
            found.append(each)
            seconds += each.seconds
            progress.advance(task)
    console.print(f"{seconds:.0f} seconds of processors")
    return report(console, found, stale, options.least)


def _stale(fault: Fault) -> ValueError | SyntaxError | None:
    try:
        compile(fault.source(), fault.file, "exec")
    except (ValueError, SyntaxError) as error:
        return error
    return None


def report(console: Console, found: Sequence[Outcome], stale: Sequence[str], least: float) -> int:
    """Prints what caught each fault, and the share of each stage; the exit status."""
    table = Table("fault", "stage", "caught by", "s")
    shares = Table("stage", "faults", "caught")
    order = [(each, each.run.fault) for each in found if each.run.fault is not None]
    order.sort(key=lambda pair: (pair[1].stage, pair[1].name))
    for each, fault in order:
        caught_by = each.failed[0] if each.failed else f"[red]NOT CAUGHT: {fault.what}"
        table.add_row(fault.name, fault.stage, caught_by, f"{each.seconds:.0f}")
    for stage in dict.fromkeys(fault.stage for _, fault in order):
        own = [each for each, fault in order if fault.stage == stage]
        shares.add_row(stage, str(len(own)), str(sum(bool(each.failed) for each in own)))
    console.print(table, shares)
    caught = sum(bool(each.failed) for each in found)
    share = 100 * caught / max(len(found), 1)
    console.print(f"{caught} of {len(found)} faults caught ({share:.1f}%)")
    for text in stale:
        console.print(f"[red]{text}")
    return 1 if stale or share < least else 0


if __name__ == "__main__":
    sys.exit(main())
