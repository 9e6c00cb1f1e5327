"""LAMPWORK_DEBUG on a terminal: what is compiled is told on stderr while it happens.

Each level tells more than the one before; the table is in docs/debugging.md.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from functools import wraps

import rich.console
from rich.syntax import Syntax
from rich.text import Text

from lampwork.debug import facts, text
from lampwork.debug.diagnostics import remedy_of
from lampwork.debug.stages import stage_texts
from lampwork.debug.words import place, source_line
from lampwork.errors import Diagnostic
from lampwork.ir.artifact import Artifact
from lampwork.ir.location import Location
from lampwork.ir.region import Continue, Raise, RunEagerly
from lampwork.runtime.function import CompiledFunction

log = logging.getLogger("lampwork")


def _harmless(tell: Callable[..., None]) -> Callable[..., None]:
    """What cannot be printed does not keep the program from being compiled."""

    @wraps(tell)
    def told(*args: object) -> None:
        try:
            tell(*args)
        except Exception:
            log.exception("LAMPWORK_DEBUG: nothing could be printed")

    return told


class Console:
    """Prints what belongs to `level` or a lower one."""

    def __init__(self, level: int) -> None:
        self.level = level

    @_harmless
    def compiled(self, compiled: CompiledFunction, artifact: Artifact, seconds: float) -> None:
        """A compile has ended: what came out, and why not more (1), under which guards (2)."""
        if self.level >= 1:
            self._entry(compiled, artifact, f"compiled in {text.milliseconds(seconds * 1e3)}")
        if self.level >= 2:
            self._guards(compiled, artifact)

    @_harmless
    def loaded(self, compiled: CompiledFunction, artifact: Artifact) -> None:
        if self.level >= 1:
            shipped = compiled.shipped
            place = "the on-disk cache"
            if shipped is not None and any(artifact is each for each in shipped.artifacts):
                place = shipped.file
            self._entry(compiled, artifact, f"loaded from {place}")
        if self.level >= 2:
            self._guards(compiled, artifact)

    @_harmless
    def recompiled(self, compiled: CompiledFunction, why: Diagnostic) -> None:
        if self.level >= 1:
            self._line(compiled, "no entry fits this call: compiling one more", "yellow")
        if self.level >= 2:
            self._details(f"{why.reason}", *self._where(why.location))

    @_harmless
    def fell_back(self, compiled: CompiledFunction, why: Diagnostic) -> None:
        if self.level >= 1:
            self._line(compiled, "runs eagerly", "yellow")
            self._reason(why.id, why.reason, why.location, remedy_of(why))

    @_harmless
    def stage(self, compiled: CompiledFunction, name: str, value: object) -> None:
        """What a stage made: graphs (3), loops and kernels (4), code (5)."""
        if self.level < 3:
            return
        for each in stage_texts(name, value):
            if each.level <= self.level:
                self._block(f"{compiled.name}: {each.title}", each.text, each.language)

    # Parts ----------------------------------------------------------------------------------------------------------

    def _entry(self, compiled: CompiledFunction, artifact: Artifact, how: str) -> None:
        outcome = artifact.outcome
        if isinstance(outcome, RunEagerly):
            self._line(compiled, "an entry that runs eagerly", "yellow")
            self._reason(outcome.id, outcome.reason, outcome.location, outcome.remedy)
            return
        found = facts.graph(artifact)
        aten = sum(found["aten_calls"].values())
        self._line(
            compiled,
            f"{how}: {_count(found['kernels'], 'kernel')} in {_count(found['launches'], 'launch')}, "
            f"{_count(aten, 'ATen call')}, {_count(found['guards'], 'guard')}, on {found['device']}"
            + (", with a backward pass" if artifact.backward is not None else ""),
            "green",
        )
        stages = {name: seconds * 1e3 for name, seconds in artifact.compile_seconds.items()}
        if how.startswith("compiled"):
            self._details(text.stages(stages))
        for each in artifact.specialised:
            self._details(f"{each.reason} [{each.id}]", *self._where(each.location))
        if isinstance(outcome, Continue):
            why = outcome.reason
            self._line(compiled, "breaks there, and goes on after one native call", "yellow")
            self._reason(why.id, why.reason, why.location, why.remedy)
        elif isinstance(outcome, Raise):
            self._details("ends by raising the program's exception")

    def _guards(self, compiled: CompiledFunction, artifact: Artifact) -> None:
        found = text.guards(facts.guards(artifact, compiled.function))
        if found:
            self._block(f"{compiled.name}: guards of the entry", found)

    def _reason(self, name: str, reason: str, location: Location, remedy: str) -> None:
        self._details(*self._where(location), f"{facts.first_lines(reason)} [{name}]")
        if remedy:
            self._details(f"what to do: {remedy}")

    def _where(self, location: Location) -> list[str]:
        return [f"{place(location)}: {source_line(location)}"] if location.file else []

    # Lines ----------------------------------------------------------------------------------------------------------

    def _console(self) -> rich.console.Console:
        return rich.console.Console(file=sys.stderr, soft_wrap=True, highlight=False)  # as it is now: tests replace it

    def _line(self, compiled: CompiledFunction, what: str, style: str) -> None:
        self._console().print(Text.assemble(("lampwork ", "bold"), (compiled.name, "cyan"), ": ", (what, style)))

    def _details(self, *lines: str) -> None:
        for line in lines:
            self._console().print(Text(f"    {line}"))

    def _block(self, title: str, content: str, language: str = "text") -> None:
        console = self._console()
        console.print(Text(f"-- {title} ".ljust(100, "-"), style="bold"))
        if console.is_terminal and language != "text":
            console.print(Syntax(content.rstrip(), language, background_color="default"))
        else:
            console.print(Text(content.rstrip()))
        console.print()


def _count(count: int, noun: str) -> str:
    plural = "es" if noun.endswith("ch") else "s"
    return f"{count} {noun}{'' if count == 1 else plural}"
