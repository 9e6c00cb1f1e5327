"""What LAMPWORK_DEBUG, LAMPWORK_STOP_AT and LAMPWORK_RECORD make of compiles: printed, interpreted, written down."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from lampwork.config import environment
from lampwork.debug.console import Console
from lampwork.debug.stop_at import KeptStages
from lampwork.errors import Diagnostic
from lampwork.ir.artifact import Artifact
from lampwork.runtime.function import CompiledFunction
from lampwork.runtime.observer import Compile, Observer, Run

#: The level of LAMPWORK_DEBUG from which on stages are shown.
STAGES_SHOWN = 3


def of_environment() -> Observer:
    told: Observer = _Told(Console(environment.debug), environment.stop_at)
    if not environment.record:
        return told
    recorded = _recorded(environment.record)
    return _Both(told, recorded) if environment.debug or environment.stop_at else recorded


@functools.cache
def _recorded(folder: str) -> Observer:
    """One file for all compiled functions of the process."""
    from lampwork.records.observer import Recorded
    from lampwork.records.record import RecordFile

    return Recorded(RecordFile(folder))


class _Both:
    """Two observers; the first says what runs."""

    def __init__(self, first: Observer, second: Observer) -> None:
        self.first, self.second = first, second
        self.needs_stages = first.needs_stages or second.needs_stages

    def compile(self, compiled: CompiledFunction, args: tuple, kwargs: Mapping[str, object]) -> Compile:
        return _BothCompiles(*(each.compile(compiled, args, kwargs) for each in (self.first, self.second)))

    def loaded(self, compiled: CompiledFunction, artifact: Artifact) -> None:
        self.first.loaded(compiled, artifact)
        self.second.loaded(compiled, artifact)

    def recompiled(self, compiled: CompiledFunction, why: Diagnostic) -> None:
        self.first.recompiled(compiled, why)
        self.second.recompiled(compiled, why)

    def fell_back(self, compiled: CompiledFunction, why: Diagnostic) -> None:
        self.first.fell_back(compiled, why)
        self.second.fell_back(compiled, why)


class _BothCompiles:
    def __init__(self, first: Compile, second: Compile) -> None:
        self.first, self.second = first, second

    def stage(self, name: str, value: object) -> None:
        self.first.stage(name, value)
        self.second.stage(name, value)

    def finished(self, artifact: Artifact, seconds: float) -> tuple[Run, Run | None] | None:
        found = self.first.finished(artifact, seconds)
        self.second.finished(artifact, seconds)
        return found


class _Told:
    """Tells the console of each event; each reason for a fall-back once."""

    def __init__(self, console: Console, stop_at: str) -> None:
        self.console, self.stop_at = console, stop_at
        self.needs_stages = bool(stop_at) or environment.debug >= STAGES_SHOWN
        self.known: set[tuple[str, str]] = set()

    def compile(self, compiled: CompiledFunction, args: tuple, kwargs: Mapping[str, object]) -> Compile:
        return _Compile(self.console, self.stop_at, compiled)

    def loaded(self, compiled: CompiledFunction, artifact: Artifact) -> None:
        self.console.loaded(compiled, artifact)

    def recompiled(self, compiled: CompiledFunction, why: Diagnostic) -> None:
        self.console.recompiled(compiled, why)

    def fell_back(self, compiled: CompiledFunction, why: Diagnostic) -> None:
        if (why.id, why.reason) not in self.known:
            self.known.add((why.id, why.reason))
            self.console.fell_back(compiled, why)


class _Compile:
    def __init__(self, console: Console, stop_at: str, compiled: CompiledFunction) -> None:
        self.console, self.compiled = console, compiled
        self.kept = KeptStages(stop_at) if stop_at else None

    def stage(self, name: str, value: object) -> None:
        self.console.stage(self.compiled, name, value)
        if self.kept is not None:
            self.kept.stage(name, value)

    def finished(self, artifact: Artifact, seconds: float) -> tuple[Run, Run | None] | None:
        self.console.compiled(self.compiled, artifact, seconds)
        return self.kept.interpreters(artifact) if self.kept is not None else None
