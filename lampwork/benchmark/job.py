"""One job of `lampwork bench` in a process of its own: `python -P job.py JOB.json` writes its result as JSON.

A crash, a hang or a lost cache of one compiler then costs one cell of the table. Run as a script and not as
`-m lampwork.benchmark.job`, so that importing lampwork itself can be timed: a compiler's own import belongs to its
start-up. For the same reason lampwork is imported inside functions here.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from lampwork.benchmark.plan import Settings
    from lampwork.benchmark.record import Found

#: What must not be loaded before a measurement starts, named in its result if it is. (Private names of PyTorch belong
#: to `lampwork/_torch`, which is among what must not be loaded.)
COMPILERS = ("torch._dynamo", "torch._inductor", "sympy", "triton", "llvmlite", "lampwork")

Chosen = TypeVar("Chosen", bound="Settings")


@dataclass(frozen=True)
class Job(Generic[Chosen]):
    """What one process does: `kind` of the `JOBS` in `settings.jobs`, with these columns of a model."""

    kind: str
    model: str
    size: str
    columns: tuple[str, ...]
    result: str
    progress: str
    settings: Chosen

    def write(self, path: Path) -> None:
        kind = type(self.settings)
        fields = {**asdict(self), "settings_class": f"{kind.__module__}:{kind.__qualname__}", "jobs": kind.jobs}
        fields["settings"] = {
            key: value for key, value in fields["settings"].items() if key not in ("cases", "started")
        }
        path.write_text(json.dumps(fields))

    @staticmethod
    def of(fields: Found) -> Job:
        """The job that `write` wrote. Its settings name no cases: those are its parent's."""
        fields = {**fields, "columns": tuple(fields["columns"])}
        module, _, name = fields.pop("settings_class").partition(":")
        fields.pop("jobs")
        settings = {
            key: tuple(value) if isinstance(value, list) else value for key, value in fields["settings"].items()
        }
        return Job(**{**fields, "settings": getattr(importlib.import_module(module), name)(**settings)})

    def say(self, column: str, step: str) -> None:
        """Leave word of what the process is doing, for its parent to show, or to name after a crash."""
        with open(self.progress, "a") as file:
            file.write(json.dumps({"column": column, "step": step}) + "\n")


def main(path: str) -> None:
    with open(path) as file:
        fields = json.load(file)
    settings = fields["settings"]
    loaded = [name for name in COMPILERS if name in sys.modules]
    import torch

    if settings["threads"]:
        torch.set_num_threads(settings["threads"])
    started = time.perf_counter()
    import_error = None
    if any(column.startswith(("lampwork", "freeze")) for column in fields["columns"]):
        try:
            importlib.import_module(settings["compiler"].partition(":")[0])
        except Exception as error:  # reported per column; the others can still be measured
            import_error = repr(error)
    result: Found = {"import_seconds": time.perf_counter() - started, "import_error": import_error}
    result["loaded_before"] = loaded
    from lampwork.benchmark import device
    from lampwork.benchmark.job import Job

    job = Job.of(fields)
    result.update(importlib.import_module(fields["jobs"]).JOBS[job.kind](job))
    result["environment"] = {**device.machine(), **device.describe(job.settings.device)}
    with open(job.result, "w") as file:
        json.dump(result, file)


if __name__ == "__main__":
    main(sys.argv[1])
