"""`run`: a case in a process of its own, with a folder of its own, and what came of it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.faults.cases import Case
from tests.faults.child import SKIPPED

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Outcome:
    """`verdict`: "passed", "FAILED", "HANGS", "DIED" (by a signal) or "skipped"."""

    case: Case
    seed: int
    verdict: str
    seconds: float
    output: str

    @property
    def is_bad(self) -> bool:
        return self.verdict not in ("passed", "skipped")


def run(case: Case, seed: int) -> Outcome:
    """Runs the case; nothing of it is left when this returns."""
    folder = Path(tempfile.mkdtemp(prefix="lampwork-faults-"))
    start = time.monotonic()
    try:
        environment = {**os.environ, "LAMPWORK_CACHE_DIR": str(folder / "cache"), "FAULTS_FOLDER": str(folder)}
        environment["PYTHONPATH"] = os.pathsep.join((str(ROOT), environment.get("PYTHONPATH", "")))
        environment.update(OMP_NUM_THREADS="2", PYTHONFAULTHANDLER="1")
        environment.pop("LAMPWORK_STRICT", None)
        for name, value in case.environment.items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value.replace("{folder}", str(folder))
        with open(folder / "output", "w+b") as output:
            command = [sys.executable, "-m", "tests.faults.child", case.full_name, str(seed), str(case.seconds)]
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
            try:
                status: int | None = process.wait(case.seconds)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
                process.wait()
            output.seek(0)
            text = output.read().decode(errors="replace")
    finally:
        for parent, names, _ in os.walk(folder):  # what a case made unreadable
            for name in names:
                if not os.path.islink(os.path.join(parent, name)):
                    os.chmod(os.path.join(parent, name), 0o700)
        shutil.rmtree(folder, ignore_errors=True)
    verdict = "HANGS" if status is None else "DIED" if status < 0 else "FAILED"
    verdict = {0: "passed", SKIPPED: "skipped"}.get(status, verdict) if status is not None else verdict
    return Outcome(case, seed, verdict, time.monotonic() - start, text)
