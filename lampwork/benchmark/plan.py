"""What a benchmark was asked for: what all of them say. No torch, and nothing else of lampwork's compiler."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import ClassVar

from lampwork.benchmark.cases import Case


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How columns are made and timed. Goes to every process that measures, so every field is plain JSON."""

    columns: tuple[str, ...]
    device: str = "cpu"
    dtype: str = "float32"
    seconds: float = 8.0
    min_rounds: int = 10
    repeats: int = 1
    threads: int | None = None
    timeout: float = 1200.0
    compiler: str = "lampwork:compile"
    peer_backend: str = "inductor"

    #: The module whose `JOBS` are what the processes do, by `Job.kind`.
    jobs: ClassVar[str]


@dataclass(frozen=True, kw_only=True)
class Plan(Settings):
    """A run over `cases`, whose parts go to a record as they are done. `started`: the columns whose start is timed."""

    cases: tuple[Case, ...] = ()
    started: tuple[str, ...] = ()
    overhead: bool = True

    #: The task as it is in the digest, and what a start tells of its column beside the steady state.
    task: ClassVar[str] = "infer"
    told_by_start: ClassVar[tuple[str, ...]] = ("cold_seconds", "warm_seconds")

    def digest(self) -> str:
        """Changes with what bears on a figure; not with which cases run and which columns are started."""
        same = {key: value for key, value in asdict(self).items() if key not in ("cases", "started", "overhead")}
        if self.task != "infer":
            same["task"] = self.task
        return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()[:12]

    def parts(self) -> Iterator[tuple[Case, str, str]]:
        """Every part in the order in which they run: case, part, column."""
        if self.overhead:
            yield Case("(tiny)", "(tiny)", ""), "overhead", ""
        for case in self.cases:
            for column in self.started:
                yield case, "start", column
            yield case, "steady", ""
