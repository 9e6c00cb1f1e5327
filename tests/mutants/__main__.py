"""Seeds each fault of the catalogue, runs the tests of its stage, and prints what caught it.

Files of tests that caught something are then run without a fault: tests that fail in them as well are named, and catch
nothing; the faults that they seemed to catch are run again without them. Exit status 1 where fewer than `--least` of 100
faults are caught, or a fault's text is no longer in its file.
"""

from __future__ import annotations

import argparse
import gc
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
import pytest
from hypothesis import Phase
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.mutants import catalogue
from tests.mutants.checks import CHECKS
from tests.mutants.fault import ROOT, Fault

#: A run in which no test ends for this long hangs: pytest ends a test that it can end after `TEST_SECONDS`.
HANGS_SECONDS, TEST_SECONDS = 240, 120


@dataclass(frozen=True)
class Run:
    """Tests to run with a fault seeded, or with none. `left_out`: tests of them that are not run."""

    name: str
    fault: Fault | None
    checks: tuple[str, ...]
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """`failed`: the tests that failed, or what else ended the run; none where all passed. `file`: where that was, empty
    if no test was begun. `seconds`: of processors."""

    run: Run
    failed: tuple[str, ...]
    file: str
    seconds: float

    @property
    def checks(self) -> tuple[str, ...]:
        """What the run was to run of `file`."""
        return tuple(each for each in each_file(self.run.checks) if each.partition("::")[0] == self.file)


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


def _load() -> None:
    """Imports what runs need and no fault is in, once for all of them."""
    import torch.fx.experimental.proxy_tensor
    import torch.testing._internal.common_methods_invocations  # noqa: F401


def run_checks(run: Run, log: Path) -> int:
    """The exit status of pytest, which stops at the first failure where a fault is seeded. Runs in a forked process."""
    os.setsid()
    with log.open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    # Each test is named as it begins: so it is known where a run ends that a signal ends.
    options = ["-vv", "-rfE", "--tb=short", f"--timeout={TEST_SECONDS}", "--hypothesis-seed=0"]
    options += ["-p", "no:cacheprovider", "-p", "no:xdist"]
    options += [f"--deselect={name}" for name in run.left_out]
    if run.fault is not None:
        # The smallest example is of no use here.
        hypothesis.settings.register_profile("mutants", phases=[Phase.explicit, Phase.generate])
        hypothesis.settings.load_profile("mutants")
        from tests.mutants import overlay

        overlay.install(run.fault.module, run.fault.source())
        options.append("-x")
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


def outcome(run: Run, log: Path, status: int | None, seconds: float) -> Outcome:
    """What the log of a run says, which ended with `status`; None: it hangs."""
    text = log.read_text(errors="replace")
    begun = re.findall(r"^(tests/\S+?\.py)::", text, re.MULTILINE)
    failed: tuple[str, ...]
    if status is None:
        failed = ("hangs",)
    elif os.WIFSIGNALED(status):
        failed = (f"killed by {signal.Signals(os.WTERMSIG(status)).name}",)
    elif os.WEXITSTATUS(status) in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        failed = ()
    elif os.WEXITSTATUS(status) == pytest.ExitCode.USAGE_ERROR:
        raise RuntimeError(f"the tests of {run.name} cannot be run: {text[-1000:]}")
    else:
        found = re.findall(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", text, re.MULTILINE)
        lines = text.strip().splitlines()
        failed = tuple(found) or (lines[-1][:100] if lines else f"status {os.WEXITSTATUS(status)}",)
        begun += [each.partition("::")[0] for each in found[:1]]
    return Outcome(run, failed, begun[-1] if begun else "", seconds)


def outcomes(chosen: Sequence[Run], jobs: int, folder: Path) -> Iterator[Outcome]:
    """Each run's outcome as it ends, `jobs` at a time."""
    waiting = list(reversed(chosen))
    running: dict[int, tuple[Run, Path, float]] = {}
    gc.freeze()  # what is loaded here is there for all runs: their collections need not look at it
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                run = waiting.pop()
                log = folder / f"{run.name}.log"
                running[start(run, log)] = (run, log, time.time())
            process, status, used = os.wait4(-1, os.WNOHANG)
            if process:
                run, log, _ = running.pop(process)
                yield outcome(run, log, status, used.ru_utime + used.ru_stime)
                continue
            for each, (run, log, began) in list(running.items()):
                if time.time() - max(began, _last_written(log)) > HANGS_SECONDS:
                    os.killpg(each, signal.SIGKILL)
                    _, _, used = os.wait4(each, 0)
                    del running[each]
                    yield outcome(run, log, None, used.ru_utime + used.ru_stime)
            time.sleep(0.05)
    finally:
        for each in running:
            os.killpg(each, signal.SIGKILL)


def _last_written(log: Path) -> float:
    """When a test ended last; pytest writes a letter for each."""
    try:
        return log.stat().st_mtime
    except FileNotFoundError:
        return 0.0


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
    _load()

    console = Console()
    began = time.monotonic()
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with tempfile.TemporaryDirectory() as made, Progress(*columns, console=console) as progress:
        folder = options.logs or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        seconds = 0.0

        def done(runs: Sequence[Run], what: str) -> list[Outcome]:
            nonlocal seconds
            task, found = progress.add_task(what, total=len(runs)), []
            for each in outcomes(runs, options.jobs, folder):
                found.append(each)
                seconds += each.seconds
                progress.advance(task)
                if not each.failed and each.run.fault is not None:
                    console.print(f"[red]not caught in {each.seconds:.0f} s: {each.run.name}")
            return found

        left_out: list[str] = []
        runs = [Run(fault.name, fault, tuple(CHECKS[fault.stage])) for fault in chosen]
        found: dict[str, Outcome] = {}
        known: set[tuple[str, ...]] = set()
        while runs:
            found |= {each.run.name: each for each in done(runs, "faults")}
            files = {each.checks for each in found.values() if each.failed and each.checks} - known
            known |= files
            sound = done(
                [Run(_name(checks), None, checks) for checks in sorted(files)], "the same tests without a fault"
            )
            wrong = [name for each in sound for name in (each.failed if _are_tests(each.failed) else each.checks[:1])]
            for name in wrong:
                console.print(f"[yellow]fails without a fault, and catches none: {name}")
            left_out += wrong
            unsound = [each.file for each in sound if each.failed and not _are_tests(each.failed)]
            runs = [
                Run(each.run.name, each.run.fault, each.run.checks, tuple(left_out))
                for each in found.values()
                if each.failed and (each.failed[0] in wrong or each.file in unsound)
            ]
    console.print(f"{(time.monotonic() - began) / 60:.1f} minutes, {seconds:.0f} seconds of processors")
    return report(console, list(found.values()), stale, options.least)


def _name(checks: Sequence[str]) -> str:
    """The name of a run of these tests without a fault."""
    return f"no-fault-{checks[0].replace('/', '-')}"


def _are_tests(failed: Sequence[str]) -> bool:
    return all("::" in name for name in failed)


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
