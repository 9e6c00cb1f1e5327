"""`lampwork bench`: eager, torch.compile and lampwork on the same work in one run.

Every cell runs in a process of its own (`worker.py`), so a crash is reported where it happened and start-up is measured
from nothing: cold with empty cache folders, warm with the folders that the cold run filled. This module starts those
processes and puts their answers together; it imports no torch itself.
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
from typing import Any

from lampwork.config import MODES
from lampwork.verdict.worker import OURS, Job

NAMES = {"eager": "eager", "peer": "torch.compile", "lampwork": "lampwork", "freeze": "lampwork freeze"}


@dataclass(frozen=True)
class Settings:
    """What `lampwork bench` was asked for; goes into the JSON report."""

    models: tuple[str, ...]
    columns: tuple[str, ...]
    device: str = "cpu"
    task: str = "infer"
    dtype: str = "float32"
    mode: str | None = None
    grad_mode: str = "no_grad"
    size: str = "full"
    seconds: float = 8.0
    min_rounds: int = 10
    repeats: int = 1
    start: bool = True
    threads: int | None = None
    timeout: float = 1200.0
    compiler: str = "lampwork:compile"
    peer_backend: str = "inductor"


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
    if arguments.repeats < 1 or (arguments.seconds or 1.0) <= 0 or arguments.min_rounds < 1:
        print("lampwork bench: --repeats, --seconds and --min-rounds must be positive", file=sys.stderr)
        return 2
    if arguments.resume and not arguments.json:
        print("lampwork bench: --resume needs the record to go on with: --json FILE", file=sys.stderr)
        return 2
    if arguments.json and not Path(arguments.json).resolve().parent.is_dir():
        print(f"lampwork bench: {arguments.json}: its folder does not exist; create it first", file=sys.stderr)
        return 2
    for mode in (*(arguments.mode or ()), *(arguments.peer_mode or ())):
        if mode not in MODES:
            print(f"lampwork bench: unknown mode {mode!r}; choose among {', '.join(MODES)}", file=sys.stderr)
            return 2
    if arguments.task == "train":
        from lampwork.verdict import train

        return train.run(arguments)
    if arguments.device == "cuda" or len(arguments.mode or ()) > 1:
        from lampwork.verdict import modes

        return modes.run(arguments)
    from lampwork.verdict import report

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
    report.print_tables(results)
    return 0 if accepted(results) else 1


def measure_all(
    settings: Settings,
    show: Callable[[str, str, str], None] = lambda model, column, step: None,
    finished: Callable[[int], None] = lambda cells: None,
) -> dict[str, Any]:
    """Everything that `settings` asks for. `show(model, column, step)` says what runs, `finished(n)` counts cells."""
    results: dict[str, Any] = {
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
            cells = _Cells(settings, root, model, show)
            found: dict[str, Any] = {"columns": {name: {} for name in settings.columns}}
            if settings.start:
                for column in settings.columns:
                    found["columns"][column].update(cells.starts(column))
                    finished(1)
            steady = cells.steady()
            for column, values in steady.pop("columns", {}).items():
                found["columns"][column].update(values)
            found.update(steady)
            results["models"][model] = found
            finished(1)
            cells.clean()
        results["environment"] = results["overhead"].get("environment")
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return results


def accepted(results: dict[str, Any]) -> bool:
    """Whether every lampwork column of every model ran and gave accepted numbers, in each grad mode that was tried."""
    models = [found["columns"] for found in results["models"].values()]
    return all(judge(columns[name])[0] for columns in models for name in OURS if name in columns)


def judge(column: dict[str, Any]) -> tuple[bool, str]:
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


def verdicts(column: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Each comparison that was made for a column, with its name."""
    found: list[tuple[str, dict[str, Any]]] = []
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

    def overhead(self) -> dict[str, Any]:
        return self._every_column("overhead")

    def steady(self) -> dict[str, Any]:
        return self._every_column("steady")

    def starts(self, column: str) -> dict[str, Any]:
        """Cold and warm starts of one column: medians over the repeats, all samples beside them."""
        cold: list[dict[str, Any]] = []
        warm: list[dict[str, Any]] = []
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

    def _every_column(self, kind: str) -> dict[str, Any]:
        """A job of all columns. A column that takes the process down is left out of a second and third try."""
        columns = list(self.settings.columns)
        lost: dict[str, dict[str, Any]] = {}
        caches = {column: self.folder / f"{column}-0" for column in columns}
        while True:
            found = self._work(kind, tuple(columns), caches, "")
            culprit = found.get("culprit")
            if "error" not in found or culprit not in columns or culprit == "eager":
                break
            lost[culprit] = {"error": found["error"]}
            columns.remove(culprit)
        if "error" in found:
            lost.update({name: {"error": found["error"]} for name in columns})
        found["columns"] = {**found.get("columns", {}), **lost}
        return found

    def _work(self, kind: str, columns: tuple[str, ...], caches: dict[str, Path], step: str) -> dict[str, Any]:
        """Run one worker; its result, or `error` with how it ended and `culprit`, the column it was at."""
        settings = self.settings
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        job = Job(
            kind=kind,
            model=self.model,
            columns=columns,
            result=str(folder / "result.json"),
            progress=str(folder / "progress"),
            device=settings.device,
            dtype=settings.dtype,
            mode=settings.mode,
            grad_mode=settings.grad_mode,
            size=settings.size,
            seconds=settings.seconds,
            min_rounds=settings.min_rounds,
            threads=settings.threads,
            compiler=settings.compiler,
            peer_backend=settings.peer_backend,
        )
        (folder / "job.json").write_text(json.dumps(asdict(job)))
        (folder / "progress").touch()
        command = [sys.executable, "-P", str(Path(__file__).with_name("worker.py")), str(folder / "job.json")]
        with open(folder / "log", "w") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(folder, caches),
                start_new_session=True,
            )
            try:
                ended = self._watch(process, folder / "progress", columns, step)
            finally:
                _end(process)
        try:
            return json.loads((folder / "result.json").read_text())
        except (OSError, ValueError):
            last = _last_event(folder / "progress")
            lines = (folder / "log").read_text(errors="replace").strip().splitlines()
            told = next((line for line in reversed(lines) if line.strip() and not line.startswith(" ")), "")
            at = f" while {last['step']}" if last else ""
            return {
                "error": f"the process {ended}{at}: {told}"[:600],
                "culprit": last.get("column", columns[0]),
                "log": lines[-40:],
            }

    def _environment(self, folder: Path, caches: dict[str, Path]) -> dict[str, str]:
        """The worker's environment: cache folders of its own, and the same modules as this process finds.

        The folder for temporary files belongs to the caches: torch.compile keeps part of what makes a start warm there,
        and a new one for each process costs its warm start 6 s (3.6 s become 9.4 s for mlp).
        """
        ours = caches.get("lampwork") or caches.get("freeze") or folder / "cache"
        peer = caches.get("peer") or folder / "cache"
        temporary = (caches.get("peer") or ours) / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        package_root = str(Path(__file__).resolve().parents[2])
        paths = [package_root, os.getcwd(), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        return {
            **os.environ,
            "LAMPWORK_CACHE_DIR": str(ours / "lampwork"),
            "TORCHINDUCTOR_CACHE_DIR": str(peer / "inductor"),
            "TRITON_CACHE_DIR": str(peer / "triton"),
            "TMPDIR": str(temporary),
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
            "TRANSFORMERS_VERBOSITY": "error",
        }

    def _watch(self, process: subprocess.Popen[bytes], progress: Path, columns: tuple[str, ...], step: str) -> str:
        """Wait for the worker, showing what it does; how it ended, in words."""
        deadline = time.monotonic() + self.settings.timeout
        while True:
            try:
                code = process.wait(timeout=0.05 if len(columns) == 1 else 0.2)
                break
            except subprocess.TimeoutExpired:
                event = _last_event(progress)
                column = event.get("column", columns[0])
                doing = ", ".join(filter(None, (step, event.get("step", "importing torch"))))
                self.show(self.model, NAMES.get(column, column), doing)
                if time.monotonic() > deadline:
                    return f"was stopped after {self.settings.timeout:.0f} s"
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with status {code}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Stop a worker and the compile processes that it started, if any of them still run."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()


def _last_event(progress: Path) -> dict[str, str]:
    lines = progress.read_text().splitlines()
    return json.loads(lines[-1]) if lines else {}


def _start_seconds(sample: dict[str, Any], column: str) -> float:
    """From the program's first touch of the compiler to the first result: our import, the compile and the call."""
    return sample["first_call_seconds"] + (sample["import_seconds"] if column in OURS else 0.0)
