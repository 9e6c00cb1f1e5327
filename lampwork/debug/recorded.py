"""What one compile went through, kept until it is dumped: the texts of its stages, its graphs, the values it read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from lampwork.debug.interpret.graphs import snapshot
from lampwork.debug.stages import StageText, stage_texts
from lampwork.ir.artifact import Artifact
from lampwork.ir.region import FunctionalGraph, Region
from lampwork.runtime.function import CompiledFunction
from lampwork.runtime.guards.interpreter import Scope, read
from lampwork.runtime.observer import Run


class Recorded:
    """One compile. `values`: those of the region's inputs, None where they could not be read.

    `region` and `functional` (with "" and " backward" for keys) are copies that no later stage edits.
    """

    def __init__(self, function: Callable, args: tuple, kwargs: Mapping[str, Any]) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.texts: dict[str, StageText] = {}
        self.stages: dict[str, Any] = {}
        self.region: Region | None = None
        self.functional: dict[str, FunctionalGraph] = {}
        self.values: list[Any] | None = None
        self.artifact: Artifact | None = None

    def stage(self, name: str, value: Any) -> None:
        self.stages[name] = value
        self.texts |= {each.section: each for each in stage_texts(name, value)}
        if name == "capture" and value.graph is not None:
            self.region = replace(value, graph=snapshot(value.graph))
            self.values = self._values(value)
        elif name in ("prepare", "prepare backward"):
            self.functional[name.removeprefix("prepare")] = replace(value, graph=snapshot(value.graph))

    def _values(self, region: Region) -> list[object] | None:
        scope = Scope(self.function, self.args, dict(self.kwargs))
        try:
            return [read(source, scope) for source in region.inputs]
        except Exception:
            return None

    def finished(self, artifact: Artifact, seconds: float) -> tuple[Run, Run | None] | None:
        self.artifact = artifact
        return None


class Recorder:
    """An observer that keeps every compile of a function and of the rests of its calls after breaks."""

    needs_stages = True

    def __init__(self) -> None:
        self.compiles: list[Recorded] = []

    def compile(self, compiled: CompiledFunction, args: tuple, kwargs: Mapping[str, object]) -> Recorded:
        self.compiles.append(Recorded(compiled.function, args, kwargs))
        return self.compiles[-1]

    def loaded(self, *about: object) -> None: ...

    def recompiled(self, *about: object) -> None: ...

    def fell_back(self, *about: object) -> None: ...
