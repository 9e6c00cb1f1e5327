"""The cells of a table: parts of a case, each in a process of its own, with cache folders for each compiler."""

from __future__ import annotations

import hashlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lampwork.benchmark.cases import Case
from lampwork.benchmark.columns import is_ours
from lampwork.benchmark.job import Job
from lampwork.benchmark.plan import Plan, Settings
from lampwork.benchmark.processes import TIMED_OUT, ForkServer
from lampwork.benchmark.record import Found

SCRIPT = str(Path(__file__).with_name("job.py"))


class Cells:
    """Runs the parts of one case of a plan in processes that a fork server makes."""

    def __init__(self, plan: Plan, case: Case, server: ForkServer, root: Path, remaining: float | None) -> None:
        self.plan, self.case, self.server = plan, case, server
        self.folder = root / hashlib.sha256(case.name.encode()).hexdigest()[:12]
        self.folder.mkdir(exist_ok=True)
        self.limit = plan.timeout if remaining is None else min(plan.timeout, remaining)
        self.deadline = time.monotonic() + self.limit
        self.out_of_time = False

    def start(self, column: str) -> Found:
        """Cold and warm starts of one column: medians over the repeats, all samples beside them."""
        cold: list[Found] = []
        warm: list[Found] = []
        for repeat in range(self.plan.repeats):
            cache = self.folder / f"{column.replace(':', '-')}-{repeat}"
            for samples in (cold, warm) if column != "eager" else (warm,):  # nothing of eager's is kept
                found = self._work("start", (column,), cache, cache)
                if "error" in found:
                    return {"error": found["error"], "log": found.get("log")}
                samples.append(found)
        cold = cold or warm
        return {
            "cold_seconds": statistics.median(start_seconds(sample, column) for sample in cold),
            "warm_seconds": statistics.median(start_seconds(sample, column) for sample in warm),
            "peak_mib": warm[0]["peak_mib"],
            "held_mib": warm[0]["held_mib"],
            "cold": cold,
            "warm": warm,
        }

    def every_column(self, kind: str) -> Found:
        """A part with all columns."""
        ours, peer = (self.folder / f"{self._first(name)}-0" for name in ("lampwork", "peer"))
        work = lambda columns: self._work(kind, columns, ours, peer)
        return without_culprits(self.plan.columns, work, lambda: self.out_of_time)

    def _first(self, kind: str) -> str:
        return next((each for each in self.plan.columns if each.startswith(kind)), kind).replace(":", "-")

    def _work(self, kind: str, columns: tuple[str, ...], ours: Path, peer: Path) -> Found:
        """Run one process; what `result_of` tells of it."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        path = write_job(folder, self.plan, kind, self.case.model, self.case.size, columns)
        environment = {**self.server.environment, **cache_folders(ours, peer, peer)}
        ended = self.server.run(SCRIPT, str(path), environment, folder / "log", self.deadline)
        found = result_of(folder, ended, columns)
        self.out_of_time = "culprit" in found and ended == TIMED_OUT and self.limit < self.plan.timeout
        return found


def without_culprits(
    columns: tuple[str, ...],
    work: Callable[[tuple[str, ...]], Found],
    out_of_time: Callable[[], bool] = lambda: False,
) -> Found:
    """`work(columns)`. A column that takes the process down is left out of a second and third try."""
    left = list(columns)
    lost: dict[str, Found] = {}
    while True:
        found = work(tuple(left))
        culprit = found.get("culprit")
        if "error" not in found or out_of_time() or culprit not in left or culprit == "eager":
            break
        lost[culprit] = {"error": found["error"], "log": found.get("log")}
        left.remove(culprit)
    if "error" in found:
        lost.update({name: {"error": found["error"]} for name in left})
    found["columns"] = {**found.get("columns", {}), **lost}
    return found


def write_job(folder: Path, settings: Settings, kind: str, model: str, size: str, columns: tuple[str, ...]) -> Path:
    """The file that tells a process what to do; it leaves its result and progress in the same folder."""
    job = Job(kind, model, size, columns, str(folder / "result.json"), str(folder / "progress"), settings)
    job.write(folder / "job.json")
    (folder / "progress").touch()
    return folder / "job.json"


def result_of(folder: Path, ended: str, columns: tuple[str, ...]) -> Found:
    """What a process found, or `error` with how it ended and `culprit`, the column it was at."""
    try:
        return json.loads((folder / "result.json").read_text())
    except (OSError, ValueError):
        pass
    last = last_event(folder / "progress")
    log = (folder / "log").read_text(errors="replace").strip().splitlines() if (folder / "log").exists() else []
    told = next((line for line in reversed(log) if line.strip() and not line.startswith(" ")), "")
    at = f" while {last['step']}" if last else ""
    return {
        "error": f"the process {ended}{at}: {told}"[:600],
        "culprit": last.get("column", columns[0]),
        "log": log[-40:],
    }


def last_event(progress: Path) -> dict[str, str]:
    lines = progress.read_text().splitlines()
    return json.loads(lines[-1]) if lines else {}


def cache_folders(ours: Path, peer: Path, temporary: Path) -> dict[str, str]:
    """The part of an environment that says where compilers keep what makes a start warm.

    The folder for temporary files belongs to it: torch.compile keeps a part there, and a new one for each process costs
    its warm start 6 s (3.6 s become 9.4 s for mlp).
    """
    (temporary / "tmp").mkdir(parents=True, exist_ok=True)
    return {
        "LAMPWORK_CACHE_DIR": str(ours / "lampwork"),
        "LAMPWORK_CACHE_URL": "",
        "TORCHINDUCTOR_CACHE_DIR": str(peer / "inductor"),
        "TRITON_CACHE_DIR": str(peer / "triton"),
        "TMPDIR": str(temporary / "tmp"),
    }


def start_seconds(sample: Found, column: str) -> float:
    """From the program's first touch of the compiler to the first result: our import, the compile and the call."""
    return sample["call_seconds"][0] + (sample["import_seconds"] if is_ours(column) else 0.0)
