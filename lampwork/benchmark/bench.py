"""`lampwork bench`: eager, torch.compile and lampwork on the same work in one run.

Every cell runs in a process of its own (`job.py`; what is measured there says `bench_jobs.py`), so a crash is reported
where it happened and start-up is measured from nothing: cold with empty cache folders, warm with the folders that the
cold run filled. This module starts those processes and puts their answers together; it imports no torch itself.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from lampwork.benchmark import cells, plan, processes
from lampwork.benchmark.cases import why_unknown
from lampwork.benchmark.columns import is_ours
from lampwork.benchmark.record import Found

OURS = ("lampwork", "freeze")
NAMES = {"eager": "eager", "peer": "torch.compile", "lampwork": "lampwork", "freeze": "lampwork freeze"}


@dataclass(frozen=True, kw_only=True)
class Settings(plan.Settings):
    """What `lampwork bench` was asked for; goes into the JSON report."""

    models: tuple[str, ...]
    task: str = "infer"
    mode: str | None = None
    grad_mode: str = "no_grad"
    size: str = "full"
    start: bool = True

    jobs: ClassVar[str] = "lampwork.benchmark.bench_jobs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of `lampwork bench`."""
    parser.add_argument(
        "models", nargs="+", metavar="NAME", help="mlp resnet vit bert gpt2 llama unet, or package.module:factory"
    )
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="where the models run (cpu)")
    parser.add_argument("--task", default="infer", choices=["infer", "train"], help="what is measured (infer)")
    dtypes = ["float32", "bfloat16", "float16", "float64"]
    parser.add_argument("--dtype", choices=dtypes, help="float32 on a CPU, bfloat16 on a GPU")
    parser.add_argument(
        "--mode",
        nargs="+",
        metavar="MODE",
        help="the mode of both torch.compile and lampwork.compile; several on one run make a column each "
        "(on a GPU: default reduce-overhead)",
    )
    parser.add_argument("--grad-mode", default="no_grad", choices=["no_grad", "inference_mode"], help="what is timed")
    sizes = ["full", "tiny", "gpu"]
    parser.add_argument("--size", choices=sizes, help="tiny: same structure, milliseconds; gpu: the sizes for a GPU")
    parser.add_argument("--seconds", type=float, help="time for the steady state of each model (8; several modes: 4)")
    parser.add_argument("--min-rounds", type=int, default=10, help="rounds at least, however long they take (10)")
    parser.add_argument("--repeats", type=int, default=1, help="cold and warm starts of each column (1)")
    parser.add_argument("--threads", type=int, help="threads of torch and of lampwork (torch's own choice)")
    parser.add_argument("--timeout", type=float, help="seconds before a cell is given up (1200; on a GPU 150)")
    parser.add_argument("--json", metavar="FILE", help="write everything that was measured")
    parser.add_argument("--html", metavar="FILE", help="write a page that needs nothing beside it (CPU, one mode)")
    parser.add_argument("--no-peer", action="store_true", help="leave torch.compile out")
    freeze = parser.add_mutually_exclusive_group()
    freeze.add_argument("--freeze", action="store_true", help="measure options={'freeze': True} too (the default)")
    freeze.add_argument("--no-freeze", action="store_true", help="leave options={'freeze': True} out")
    parser.add_argument("--no-start", action="store_true", help="leave cold and warm starts out")
    modes = parser.add_argument_group("with --device cuda, several modes, or --task train")
    modes.add_argument("--peer-mode", nargs="+", metavar="MODE", help="modes of torch.compile, if not the same")
    modes.add_argument("--budget", type=float, metavar="SECONDS", help="stop in time; ends with 3 if something is left")
    modes.add_argument("--resume", action="store_true", help="measure only what --json FILE does not hold yet")
    modes.add_argument("--any-source", action="store_true", help="resume results of another source of lampwork too")
    modes.add_argument(
        "--starts",
        default="first",
        choices=["first", "all", "ours", "none"],
        help="starts of the first mode of each compiler (first), of all modes, of lampwork alone, of none",
    )
    modes.add_argument("--no-profile", action="store_true", help="leave the profile of GPU kernels out")
    modes.add_argument("--no-overhead", action="store_true", help="leave the tiny function out")
    training = parser.add_argument_group("with --task train")
    training.add_argument("--steps", type=int, default=5, help="steps after which columns are compared (5)")
    training.add_argument("--dropout", action="store_true", help="keep dropouts; nothing is compared then")
    optimizers = ["fused", "foreach", "plain"]
    training.add_argument("--optimizer", choices=optimizers, default="fused", help="implementation of AdamW (fused)")
    parser.add_argument("--compiler", default="lampwork:compile", help=argparse.SUPPRESS)  # for tests of this command
    parser.add_argument("--peer-backend", default="inductor", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Measure, print the tables, write the report; 0 if lampwork's numbers were accepted, 1 if not, 2 if misused."""
    from lampwork.config import MODES  # here, since the processes that measure load this page before they load lampwork

    if arguments.repeats < 1 or (arguments.seconds or 1.0) <= 0 or arguments.min_rounds < 1:
        print("lampwork bench: --repeats, --seconds and --min-rounds must be positive", file=sys.stderr)
        return 2
    if arguments.resume and not arguments.json:
        print("lampwork bench: --resume needs the record to go on with: --json FILE", file=sys.stderr)
        return 2
    if arguments.json and not Path(arguments.json).resolve().parent.is_dir():
        print(f"lampwork bench: {arguments.json}: its folder does not exist; create it first", file=sys.stderr)
        return 2
    if arguments.html and not Path(arguments.html).resolve().parent.is_dir():
        print(f"lampwork bench: {arguments.html}: its folder does not exist; create it first", file=sys.stderr)
        return 2
    for mode in (*(arguments.mode or ()), *(arguments.peer_mode or ())):
        if mode not in MODES:
            print(f"lampwork bench: unknown mode {mode!r}; choose among {', '.join(MODES)}", file=sys.stderr)
            return 2
    several = arguments.device == "cuda" or len(arguments.mode or ()) > 1
    if arguments.html and (several or arguments.task == "train"):
        print("lampwork bench: --html is for inference on a CPU in one mode; --json takes all", file=sys.stderr)
        return 2
    for name in arguments.models:
        unknown = why_unknown(name, with_cases=several or arguments.task == "train")
        if unknown:
            print(f"lampwork bench: {unknown}", file=sys.stderr)
            return 2
    if arguments.task == "train":
        from lampwork.benchmark import train

        return train.run(arguments)
    if several:
        from lampwork.benchmark import modes

        return modes.run(arguments)
    from lampwork.benchmark import report

    columns = ["eager"]
    columns += [] if arguments.no_peer else ["peer"]
    columns += ["lampwork"] if arguments.no_freeze else ["lampwork", "freeze"]
    settings = Settings(
        models=tuple(arguments.models),
        columns=tuple(columns),
        device=arguments.device,
        task=arguments.task,
        dtype=arguments.dtype or "float32",
        mode=arguments.mode[0] if arguments.mode else None,
        grad_mode=arguments.grad_mode,
        size=arguments.size or "full",
        seconds=arguments.seconds or 8.0,
        min_rounds=arguments.min_rounds,
        repeats=arguments.repeats,
        start=not arguments.no_start,
        threads=arguments.threads,
        timeout=arguments.timeout or 1200.0,
        compiler=arguments.compiler,
        peer_backend=arguments.peer_backend,
    )
    # Ended from outside, it still stops its workers and removes their folders.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with report.Progress(settings) as progress:
        results = measure_all(settings, progress.update, progress.finished)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1))
    if arguments.html:
        from lampwork.benchmark.page import page

        Path(arguments.html).write_text(page(results), encoding="utf-8")
    report.print_tables(results)
    return 0 if accepted(results) else 1


def measure_all(
    settings: Settings,
    show: Callable[[str, str, str], None] = lambda model, column, step: None,
    finished: Callable[[int], None] = lambda cells: None,
) -> Found:
    """Everything that `settings` asks for. `show(model, column, step)` says what runs, `finished(n)` counts cells."""
    results: Found = {
        "settings": asdict(settings),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "environment": None,
        "load_before": os.getloadavg()[0],
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "models": {},
    }
    # pip compiles the modules of what it installs, the peer's among them; a source checkout may not have been.
    compileall.compile_dir(Path(__file__).parents[1], quiet=2)
    root = Path(tempfile.mkdtemp(prefix="lampwork-bench-"))
    try:
        results["overhead"] = _Cells(settings, root, "(tiny)", show).overhead()
        finished(1)
        for model in settings.models:
            model_cells = _Cells(settings, root, model, show)
            found: Found = {"columns": {name: {} for name in settings.columns}}
            if settings.start:
                for column in settings.columns:
                    found["columns"][column].update(model_cells.starts(column))
                    finished(1)
            steady = model_cells.steady()
            for column, values in steady.pop("columns", {}).items():
                found["columns"][column].update(values)
            found.update(steady)
            results["models"][model] = found
            finished(1)
            model_cells.clean()
        results["environment"] = results["overhead"].get("environment")
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return results


def accepted(results: Found) -> bool:
    """Whether every lampwork column of every model ran and gave accepted numbers, in each grad mode that was tried."""
    models = [found["columns"] for found in results["models"].values()]
    return all(judge(columns[name])[0] for columns in models for name in OURS if name in columns)


def judge(column: Found) -> tuple[bool, str]:
    """Whether one measured column is right, and what was wrong first."""
    if "error" in column:
        return False, column["error"]
    for label, verdict in verdicts(column):
        if not verdict["accepted"]:
            return False, f"{label}: {'; '.join(verdict['reasons'][:2])}"
    for mode in ("no_grad", "inference_mode"):
        if "error" in column.get(mode, {}):
            return False, f"{mode}: {column[mode]['error']}"
    if "verified" not in column:
        return False, "was not measured"
    return True, ""


def verdicts(column: Found) -> list[tuple[str, Found]]:
    """Each comparison that was made for a column, with its name."""
    found: list[tuple[str, Found]] = []
    found += [(key, column[key]) for key in ("verified", "verified_again") if key in column]
    for mode in ("no_grad", "inference_mode"):
        if "verified" in column.get(mode, {}):
            found.append((mode, column[mode]["verified"]))
    return found


class _Cells:
    """Starts the worker processes of one model and gathers what they say."""

    def __init__(self, settings: Settings, root: Path, model: str, show: Callable[[str, str, str], None]) -> None:
        self.settings = settings
        self.model = model
        self.show = show
        self.folder = Path(tempfile.mkdtemp(dir=root))

    def clean(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def overhead(self) -> Found:
        return self._every_column("overhead")

    def steady(self) -> Found:
        return self._every_column("steady")

    def starts(self, column: str) -> Found:
        """Cold and warm starts of one column: medians over the repeats, all samples beside them."""
        cold: list[Found] = []
        warm: list[Found] = []
        for repeat in range(self.settings.repeats):
            cache = self.folder / f"{column}-{repeat}"
            cold.append(self._work("start", (column,), {column: cache}, f"cold start {repeat + 1}"))
            if "error" in cold[-1]:
                return {"start_error": cold[-1]["error"]}
            warm.append(self._work("start", (column,), {column: cache}, f"warm start {repeat + 1}"))
            if "error" in warm[-1]:
                return {"start_error": warm[-1]["error"]}
        return {
            "cold_seconds": statistics.median(_start_seconds(sample, column) for sample in cold),
            "warm_seconds": statistics.median(_start_seconds(sample, column) for sample in warm),
            "peak_mib": statistics.median(sample["peak_mib"] or sample["compile_peak_mib"] for sample in warm),
            "compile_peak_mib": statistics.median(sample["compile_peak_mib"] for sample in cold),
            "cold": cold,
            "warm": warm,
        }

    def _every_column(self, kind: str) -> Found:
        """A job of all columns."""
        caches = {column: self.folder / f"{column}-0" for column in self.settings.columns}
        return cells.without_culprits(self.settings.columns, lambda columns: self._work(kind, columns, caches, ""))

    def _work(self, kind: str, columns: tuple[str, ...], caches: dict[str, Path], step: str) -> Found:
        """Run one process; what `result_of` tells of it."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        job = cells.write_job(folder, self.settings, kind, self.model, self.settings.size, columns)
        with open(folder / "log", "w") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", cells.SCRIPT, str(job)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(folder, caches),
                start_new_session=True,
            )
            try:
                ended = self._watch(process, folder / "progress", columns, step)
            finally:
                processes.end(process.pid)
                process.wait()
        return cells.result_of(folder, ended, columns)

    def _environment(self, folder: Path, caches: dict[str, Path]) -> dict[str, str]:
        """The process's environment: cache folders of its own, and the same modules as this process finds."""
        ours = caches.get("lampwork") or caches.get("freeze") or folder / "cache"
        peer = caches.get("peer") or folder / "cache"
        temporary = caches.get("peer") or ours
        return {**processes.environment(), **cells.cache_folders(ours, peer, temporary)}

    def _watch(self, process: subprocess.Popen[bytes], progress: Path, columns: tuple[str, ...], step: str) -> str:
        """Wait for the worker, showing what it does; how it ended, in words."""
        deadline = time.monotonic() + self.settings.timeout
        while True:
            try:
                code = process.wait(timeout=0.05 if len(columns) == 1 else 0.2)
                break
            except subprocess.TimeoutExpired:
                event = cells.last_event(progress)
                column = event.get("column", columns[0])
                doing = ", ".join(filter(None, (step, event.get("step", "importing torch"))))
                self.show(self.model, NAMES.get(column, column), doing)
                if time.monotonic() > deadline:
                    return f"was stopped after {self.settings.timeout:.0f} s"
        return processes.how(code)


def _start_seconds(sample: Found, column: str) -> float:
    """From the program's first touch of the compiler to the first result: our import, the compile and the call."""
    return sample["first_call_seconds"] + (sample["import_seconds"] if is_ours(column) else 0.0)
