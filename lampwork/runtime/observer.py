"""`Observer`: what is told of compiles and of what comes instead of them, for `lampwork/debug/`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from lampwork.errors import Diagnostic
from lampwork.ir.artifact import Artifact

if TYPE_CHECKING:
    from lampwork.runtime.function import CompiledFunction

#: Runs a program as `Host.call` does.
Run = Callable[..., Sequence[Any]]


class Compile(Protocol):
    """One compile."""

    def stage(self, name: str, value: object) -> None:
        """As `pipeline.Observer`."""

    def finished(self, artifact: Artifact, seconds: float) -> tuple[Run, Run | None] | None:
        """What runs the program, and that of the backward pass, in place of machine code; None: machine code does."""


class Observer(Protocol):
    """Told of all that happens to a compiled function and to the rests of its calls after breaks."""

    #: Whether it has to see the stages of all that runs: nothing serves then that was compiled elsewhere.
    needs_stages: bool

    def compile(self, compiled: CompiledFunction, args: tuple, kwargs: Mapping[str, object]) -> Compile:
        """A compile for this call begins."""

    def loaded(self, compiled: CompiledFunction, artifact: Artifact) -> None:
        """An entry serves that was made elsewhere."""

    def recompiled(self, compiled: CompiledFunction, why: Diagnostic) -> None:
        """A call fits no entry; `why` names the guard."""

    def fell_back(self, compiled: CompiledFunction, why: Diagnostic) -> None:
        """A call, or a part of one, runs eagerly."""
