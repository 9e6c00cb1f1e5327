"""What LAMPWORK_DEBUG and LAMPWORK_STOP_AT make of compiles: printed on stderr, or interpreted."""

from __future__ import annotations

from collections.abc import Mapping

from lampwork.config import environment
from lampwork.debug.console import Console
from lampwork.debug.stop_at import KeptStages
from lampwork.errors import Diagnostic
from lampwork.ir.artifact import Artifact
from lampwork.runtime.function import CompiledFunction
from lampwork.runtime.observer import Compile, Observer, Run


def of_environment() -> Observer:
    return _Told(Console(environment.debug), environment.stop_at)


class _Told:
    """Tells the console of each event; each reason for a fall-back once."""

    def __init__(self, console: Console, stop_at: str) -> None:
        self.console, self.stop_at = console, stop_at
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
