"""Writes down what happens to compiled functions, where LAMPWORK_RECORD asks for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from lampwork.errors import Diagnostic
from lampwork.ir.artifact import Artifact
from lampwork.records.record import Event, RecordFile, compiled_event, loaded_event, noted_event
from lampwork.runtime.function import CompiledFunction

log = logging.getLogger("lampwork")


class Recorded:
    """An observer of compiled functions. A file that cannot be written costs one line of the log."""

    needs_stages = False

    def __init__(self, file: RecordFile) -> None:
        self._file = file
        self._failed = False
        self._known: set[tuple[str, str, str]] = set()

    def compile(self, compiled: CompiledFunction, args: tuple, kwargs: Mapping[str, object]) -> _Compile:
        return _Compile(self, compiled)

    def loaded(self, compiled: CompiledFunction, artifact: Artifact) -> None:
        self.add(lambda: loaded_event(compiled, artifact))

    def recompiled(self, compiled: CompiledFunction, why: Diagnostic) -> None:
        self.add(lambda: noted_event("recompiled", compiled, why))

    def fell_back(self, compiled: CompiledFunction, why: Diagnostic) -> None:
        key = (compiled.name, why.id, why.reason)
        if key not in self._known:
            self._known.add(key)
            self.add(lambda: noted_event("fell back", compiled, why))

    def add(self, make: Callable[[], Event]) -> None:
        if self._failed:
            return
        try:
            self._file.add(make())
        except OSError as error:
            self._failed = True
            log.warning("no record is written: %s", error)


class _Compile:
    def __init__(self, recorded: Recorded, compiled: CompiledFunction) -> None:
        self._recorded, self._compiled = recorded, compiled

    def stage(self, name: str, value: object) -> None:
        pass

    def finished(self, artifact: Artifact, seconds: float) -> None:
        self._recorded.add(lambda: compiled_event(self._compiled, artifact, seconds))
