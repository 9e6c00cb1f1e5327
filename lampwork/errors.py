"""Errors and diagnostics users see: a stable id, what happened, where in their source, and what to do."""

from __future__ import annotations

from typing import Any

from lampwork.ir.location import Location
from lampwork.ir.record import record


@record
class Diagnostic:
    """`id` is stable and names a page of docs/diagnostics; `remedy` says what the user can do about it.

    A new id needs a line in `lampwork/debug/diagnostics.py` and a page; a test says so.
    """

    id: str
    reason: str
    location: Location = Location()
    remedy: str = ""

    @property
    def page(self) -> str:
        """Where the id is explained, with the smallest program that shows it."""
        return page_of(self.id)

    def __str__(self) -> str:
        where = f"{self.location.file}:{self.location.line}: " if self.location.file else ""
        remedy = f" {self.remedy}" if self.remedy else ""
        return f"{where}{self.reason} [{self.id}]{remedy}"


def page_of(id: str) -> str:
    return f"docs/diagnostics/{id}.md"


class LampworkError(RuntimeError):
    """Base of every error Lampwork raises on its own account."""


class OptionError(LampworkError, ValueError):
    """An argument of `lampwork.compile` is not valid; the message names the valid ones."""


class GraphBreak(LampworkError):
    """Capture met something it does not put in a graph. With `fullgraph=True` this reaches the user.

    `guards`: what had been read when the break was met. While they hold, the same call breaks at the same place, so the
    runtime keeps them as an entry that runs eagerly instead of capturing again. None: not known.
    """

    def __init__(self, diagnostic: Diagnostic, guards: tuple[Any, ...] | None = None) -> None:
        super().__init__(f"{diagnostic} (see {diagnostic.page})")
        self.diagnostic = diagnostic
        self.guards = guards
        #: Whether sizes were symbols when it was met: with numbers the program may be captured whole.
        self.symbolic = False
        #: Optimizers whose step had been begun by then, by id.
        self.optimizers: frozenset[int] = frozenset()


class CompileError(LampworkError):
    """A compiler stage failed (a defect of Lampwork). Names the stage, the operator and the user's line.

    Reaches the user only under LAMPWORK_STRICT=1; otherwise the call runs eagerly with one warning.
    """

    def __init__(self, stage: str, reason: str, operator: str = "", location: Location = Location()) -> None:
        where = f" at {location.file}:{location.line}" if location.file else ""
        what = f" ({operator})" if operator else ""
        super().__init__(f"stage {stage}{what}{where}: {reason}")
        self.stage, self.reason, self.operator, self.location = stage, reason, operator, location


class OffsetError(CompileError):
    """Nothing proves that a load or store lies inside of its buffer. Where sizes are symbols, the call is compiled for
    the sizes at hand instead."""

    def __init__(self, reason: str) -> None:
        super().__init__("verify", reason)


class DynamicSizeError(LampworkError):
    """A size that the user marked as dynamic is needed as a number. Names the guard and the line that needs it."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(str(diagnostic))
        self.diagnostic = diagnostic


class ArtifactError(LampworkError):
    """A file of `lampwork.save` or `lampwork.package` cannot be made, or cannot be used here. Names the fact, and what
    to do."""


class NotServedError(ArtifactError):
    """A call is none of those that a loaded file has programs for. Lists what is served, and what differs."""


class PassError(LampworkError):
    """A pass of the user's raised, or left what the verifier refuses (docs/passes.md). Names the pass, its stage and
    what to do. `__cause__` is what it raised, if it did."""


class RecompileError(LampworkError):
    """A call would have been compiled, and the program forbids it: by the stance "fail_on_recompile" of
    `lampwork.set_stance` or `torch.compiler.set_stance`, or by `torch._dynamo.config.error_on_recompile`. Names the
    guard that failed."""


class LampworkWarning(UserWarning):
    """A fall-back to eager, a recompile limit, an unusable cache: what happened and the remedy."""


def as_failure(error: CompileError, remedy: str = "The call ran eagerly.") -> Diagnostic:
    """What is said of an error of the compiler's own, which reaches nobody."""
    return Diagnostic("compiler-failed", f"{error}", error.location, remedy)
