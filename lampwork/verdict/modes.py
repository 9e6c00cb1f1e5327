"""`lampwork bench --device cuda`, or with several modes: eager, each mode of torch.compile and of lampwork in one run.

Every part (a start of one column, the steady state of a case) runs in a fresh process, which `fork_server.py` makes of
one that has torch loaded; GPU time is dear. A part's result is appended to the record as soon as it is known, so that
a run that is cut off goes on with `--resume`. This module imports no torch.
"""

from __future__ import annotations

import argparse
import compileall
import ctypes
import hashlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from lampwork.verdict.cases import CLASSES, Case, cases
from lampwork.verdict.modes_worker import Job, is_ours

ROOT = Path(__file__).resolve().parents[2]
OUT_OF_TIME = 3  # the exit status of a run that stopped at its budget


@dataclass(frozen=True)
class Plan:
    """What a run was asked for."""

    cases: tuple[Case, ...]
    columns: tuple[str, ...]
    started: tuple[str, ...]
    device: str
    dtype: str
    grad_mode: str
    seconds: float
    min_rounds: int
    repeats: int
    timeout: float
    threads: int | None
    compiler: str
    peer_backend: str
    profile: bool
    overhead: bool = True

    #: The script whose processes do this plan's jobs.
    worker: ClassVar[str] = "modes_worker.py"

    def job(self, kind: str, case: Case, columns: tuple[str, ...], result: str, progress: str) -> Any:
        """What one process is told to do, as JSON can hold it."""
        return Job(
            kind=kind,
            model=case.model,
            size=case.size,
            columns=columns,
            result=result,
            progress=progress,
            device=self.device,
            dtype=self.dtype,
            grad_mode=self.grad_mode,
            seconds=self.seconds,
            min_rounds=self.min_rounds,
            threads=self.threads,
            compiler=self.compiler,
            peer_backend=self.peer_backend,
            profile=self.profile,
        )

    def digest(self) -> str:
        """Changes with what bears on a figure; not with which cases run and which columns are started."""
        same = {key: value for key, value in asdict(self).items() if key not in ("cases", "started", "overhead")}
        return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:12]


class AnyPlan(Protocol):
    """What a plan says to those who carry it out: `Plan`, or `train.Plan`."""

    @property
    def cases(self) -> tuple[Case, ...]: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def started(self) -> tuple[str, ...]: ...
    @property
    def repeats(self) -> int: ...
    @property
    def timeout(self) -> float: ...
    @property
    def overhead(self) -> bool: ...

    worker: ClassVar[str]

    def job(self, kind: str, case: Case, columns: tuple[str, ...], result: str, progress: str) -> Any: ...


def source_digest() -> str:
    """Changes with lampwork's source."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "lampwork").rglob("*.py")):
        digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]


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
    """Measure, print the tables; 0 if lampwork's numbers were accepted, 1 if not, 2 if misused, 3 if out of time."""
    from lampwork.verdict import modes_report

    plan = make_plan(arguments)
    if plan.device == "cuda" and (missing := no_gpu()):
        print(f"lampwork bench: --device cuda: {missing}", file=sys.stderr)
        return 2
    record = Record(arguments.json, plan.digest(), source_digest(), arguments.resume, arguments.any_source)
    # Ended from outside, it still stops its processes and removes their folders.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    deadline = time.monotonic() + arguments.budget if arguments.budget else None
    left = measure_all(plan, record, deadline)
    results = assemble(plan, record)
    print(modes_report.text(results))
    if left:
        print(f"out of time, not measured: {', '.join(left)}; run it again with --resume", file=sys.stderr)
        return OUT_OF_TIME
    return 0 if modes_report.accepted(results) else 1


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


class Record:
    """Results of parts, in a file of one line of JSON each (or in memory alone), by (case, part, column).

    What the file holds of another plan, or of another source of lampwork unless `any_source`, is measured again.
    """

    def __init__(
        self, path: str | None = None, plan: str = "", source: str = "", resume: bool = False, any_source: bool = False
    ) -> None:
        self.path = Path(path) if path else None
        self.plan, self.source = plan, source
        self.found: dict[tuple[str, str, str], dict[str, Any]] = {}
        if self.path is not None and not resume:
            self.path.write_text("")
        for line in self.path.read_text().splitlines() if self.path is not None and self.path.exists() else ():
            try:
                part = json.loads(line)
            except ValueError:
                continue  # cut off while it was written
            if part.get("plan") == plan and (any_source or part.get("source") == source):
                self.found[(part["case"], part["part"], part["column"])] = part

    def add(self, case: str, part: str, column: str, found: dict[str, Any], seconds: float) -> None:
        when = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        line: dict[str, Any] = {"case": case, "part": part, "column": column, "when": when}
        line |= {"plan": self.plan, "source": self.source, "seconds": round(seconds, 2), "found": found}
        self.found[(case, part, column)] = line
        if self.path is not None:
            with open(self.path, "a") as file:
                file.write(json.dumps(line) + "\n")

    def get(self, case: str, part: str, column: str = "") -> dict[str, Any]:
        """What was found, or {} if it was not measured."""
        return self.found.get((case, part, column), {}).get("found", {})


def parts(plan: AnyPlan) -> Iterator[tuple[Case, str, str]]:
    """Every part of a plan in the order in which they run: case, part, column."""
    if plan.overhead:
        yield Case("(tiny)", "(tiny)", ""), "overhead", ""
    for case in plan.cases:
        for column in plan.started:
            yield case, "start", column
        yield case, "steady", ""


def measure_all(plan: AnyPlan, record: Record, deadline: float | None) -> list[str]:
    """Measure what the record does not hold; the cases that time did not suffice for."""
    todo = [(case, part, column) for case, part, column in parts(plan) if not record.get(case.name, part, column)]
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


def brief(found: dict[str, Any], part: str) -> str:
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


class Cells:
    """Runs the parts of one case in processes of their own, with cache folders for each compiler."""

    def __init__(self, plan: AnyPlan, case: Case, server: ForkServer, root: Path, remaining: float | None) -> None:
        self.plan, self.case, self.server = plan, case, server
        self.folder = root / hashlib.sha256(case.name.encode()).hexdigest()[:12]
        self.folder.mkdir(exist_ok=True)
        self.limit = plan.timeout if remaining is None else min(plan.timeout, remaining)
        self.deadline = time.monotonic() + self.limit
        self.out_of_time = False

    def start(self, column: str) -> dict[str, Any]:
        """Cold and warm starts of one column: medians over the repeats, all samples beside them."""
        cold: list[dict[str, Any]] = []
        warm: list[dict[str, Any]] = []
        for repeat in range(self.plan.repeats):
            cache = self.folder / f"{column.replace(':', '-')}-{repeat}"
            for samples in (cold, warm) if column != "eager" else (warm,):  # nothing of eager's is kept
                found = self._work("start", (column,), cache, cache)
                if "error" in found:
                    return {"error": found["error"], "log": found.get("log")}
                samples.append(found)
        cold = cold or warm
        return {
            "cold_seconds": _median([start_seconds(sample, column) for sample in cold]),
            "warm_seconds": _median([start_seconds(sample, column) for sample in warm]),
            "peak_mib": warm[0]["peak_mib"],
            "held_mib": warm[0]["held_mib"],
            "cold": cold,
            "warm": warm,
        }

    def every_column(self, kind: str) -> dict[str, Any]:
        """A part with all columns. A column that takes the process down is left out of a second and third try."""
        columns = list(self.plan.columns)
        lost: dict[str, dict[str, Any]] = {}
        ours, peer = (self.folder / f"{self._first(name)}-0" for name in ("lampwork", "peer"))
        while True:
            found = self._work(kind, tuple(columns), ours, peer)
            culprit = found.get("culprit")
            if "error" not in found or self.out_of_time or culprit not in columns or culprit == "eager":
                break
            lost[culprit] = {"error": found["error"], "log": found.get("log")}
            columns.remove(culprit)
        if "error" in found:
            lost.update({name: {"error": found["error"]} for name in columns})
        found["columns"] = {**found.get("columns", {}), **lost}
        return found

    def _first(self, kind: str) -> str:
        return next((each for each in self.plan.columns if each.startswith(kind)), kind).replace(":", "-")

    def _work(self, kind: str, columns: tuple[str, ...], ours: Path, peer: Path) -> dict[str, Any]:
        """Run one process; its result, or `error` with how it ended and `culprit`, the column it was at."""
        plan = self.plan
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        job = plan.job(kind, self.case, columns, str(folder / "result.json"), str(folder / "progress"))
        (folder / "job.json").write_text(json.dumps(asdict(job)))
        (folder / "progress").touch()
        temporary = peer / "tmp"
        temporary.mkdir(parents=True, exist_ok=True)
        environment = {
            **self.server.environment,
            "LAMPWORK_CACHE_DIR": str(ours / "lampwork"),
            "TORCHINDUCTOR_CACHE_DIR": str(peer / "inductor"),
            "TRITON_CACHE_DIR": str(peer / "triton"),
            "TMPDIR": str(temporary),
        }
        ended = self.server.run(
            str(Path(__file__).with_name(plan.worker)),
            str(folder / "job.json"),
            environment,
            folder / "log",
            self.deadline,
        )
        try:
            return json.loads((folder / "result.json").read_text())
        except (OSError, ValueError):
            pass
        self.out_of_time = ended == TIMED_OUT and self.limit < plan.timeout
        lines = (folder / "progress").read_text().splitlines()
        last = json.loads(lines[-1]) if lines else {}
        log = (folder / "log").read_text(errors="replace").strip().splitlines() if (folder / "log").exists() else []
        told = next((line for line in reversed(log) if line.strip() and not line.startswith(" ")), "")
        at = f" while {last['step']}" if last else ""
        return {
            "error": f"the process {ended}{at}: {told}"[:600],
            "culprit": last.get("column", columns[0]),
            "log": log[-40:],
        }


TIMED_OUT = "was stopped, out of time"


class ForkServer:
    """A process with torch and some classes of transformers loaded, which makes a process for each measurement."""

    def __init__(self, classes: tuple[str, ...], root: Path) -> None:
        paths = [str(ROOT), os.getcwd(), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
            "TRANSFORMERS_VERBOSITY": "error",
        }
        self.log = root / f"server-{len(classes)}.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", str(Path(__file__).with_name("fork_server.py")), *classes],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # An import that asks whether there is a GPU is answered without opening it.
                env={**self.environment, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"},
                text=True,
                start_new_session=True,
            )
        self.answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put("")

    def _answer(self, deadline: float) -> dict[str, Any] | None:
        """The next answer, or None at the deadline. Raises RuntimeError if the server has died."""
        try:
            line = self.answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return None
        if not line:
            raise RuntimeError(f"the process that starts measurements died: {self.log.read_text()[-2000:]}")
        return json.loads(line)

    def wait_ready(self) -> None:
        ready = self._answer(time.monotonic() + 180)
        if ready is None:
            raise RuntimeError("importing torch and transformers took more than 180 s")
        if not ready["forks"]:
            print("an import has opened the GPU: each process imports torch anew", file=sys.stderr)

    def run(self, script: str, argument: str, environment: dict[str, str], log: Path, deadline: float) -> str:
        """Run a script in a process of its own until it ends or the deadline comes; how it ended, in words."""
        assert self.process.stdin is not None
        order = {"script": script, "argument": argument, "environment": environment, "log": str(log)}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        started = self._answer(time.monotonic() + 60)
        assert started is not None, "no process was started within a minute"
        pid = started["pid"]
        try:
            ended = self._answer(deadline)
            if ended is None:
                _end(pid)
                self._answer(time.monotonic() + 60)
                return TIMED_OUT
        finally:
            _end(pid)
        status = ended["status"]
        return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"

    def close(self) -> None:
        _end(self.process.pid)
        self.process.wait()


def _end(pid: int) -> None:
    """Stop a process that leads a group, and the compile processes that it started, if any of them still run."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def start_seconds(sample: dict[str, Any], column: str) -> float:
    """From the program's first touch of the compiler to the first result: our import, the compile and the call."""
    return sample["call_seconds"][0] + (sample["import_seconds"] if is_ours(column) else 0.0)


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def assemble(plan: Plan, record: Record) -> dict[str, Any]:
    """All that is known of the plan's cases: the plan, the machine, {"columns"} by case, stages of cold starts."""
    models: dict[str, Any] = {}
    stages: dict[str, Any] = {}
    environment = None
    for case in plan.cases:
        steady = record.get(case.name, "steady")
        starts = {column: record.get(case.name, "start", column) for column in plan.started}
        if not steady and not any(starts.values()):
            continue
        columns: dict[str, Any] = {column: dict(steady.get("columns", {}).get(column, {})) for column in plan.columns}
        for column, found in starts.items():
            if "error" in found:
                columns[column]["start_error"] = found["error"]
            columns[column] |= {key: found[key] for key in ("cold_seconds", "warm_seconds") if key in found}
            if is_ours(column) and "cold" in found:
                stages[f"{case.name}, {column}"] = (found["cold"][0].get("stats") or {}).get("compile_seconds", {})
        environment = environment or steady.get("environment")
        models[case.name] = {"columns": columns, "reference": steady.get("reference"), "measured": bool(steady)}
    overhead = record.get("(tiny)", "overhead") if plan.overhead else {}
    return {
        "plan": asdict(plan),
        "environment": environment,
        "overhead": overhead,
        "models": models,
        "stages": stages,
    }
