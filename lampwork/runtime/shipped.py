"""Entries that came from a file (`lampwork.load`): they wait for the calls that they fit.

A call that none of them fits is compiled as usual, with one warning that says so; where the user asked for nothing but
the file, it raises. Forgetting entries (`lampwork.reset`) makes these wait anew, as the file was read once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from lampwork.errors import LampworkWarning, NotServedError
from lampwork.ir.artifact import Artifact
from lampwork.ir.continuation import Resumption

if TYPE_CHECKING:
    from lampwork.runtime.entry import Entry
    from lampwork.runtime.function import CompiledFunction

#: (artifacts, function, args, kwargs) -> what they serve, and in what the call differs from the nearest of them.
Words = Callable[[tuple[Artifact, ...], Callable, tuple, dict], tuple[str, str]]


class Shipped:
    """What a file has for one compiled callable, and for where its calls go on after breaks.

    `strict`: nothing else serves its calls, which do not break. `words`: what a call that none fits is told.
    """

    def __init__(
        self,
        file: str,
        artifacts: tuple[Artifact, ...],
        continuations: Mapping[Resumption, tuple[Artifact, ...]],
        strict: bool,
        words: Words,
    ) -> None:
        self.file, self.artifacts, self.strict, self.words = file, artifacts, strict, words
        self.continuations = continuations
        self._warned = False

    def entries(self, compiled: CompiledFunction) -> tuple[Entry, ...]:
        """The entries, made anew. Raises LookupError where this process lacks what they name."""
        return tuple([compiled.entry_of(artifact) for artifact in self.artifacts])

    def continued(self, resumption: Resumption) -> Shipped | None:
        """What the file has for calls that go on there; None where it has nothing."""
        artifacts = self.continuations.get(resumption)
        if artifacts is None:
            return None
        return Shipped(self.file, artifacts, self.continuations, self.strict, self.words)

    def missed(self, compiled: CompiledFunction, args: tuple, kwargs: dict) -> None:
        """A call fits no entry. Raises `NotServedError` where nothing else may serve it; else warns, once."""
        if not self.strict and (self._warned or not self.artifacts):
            return
        served, why = self.words(self.artifacts, compiled.function, args, kwargs)
        text = f"{self.file} has no program for this call of {compiled.name}: {why}."
        if self.strict:
            raise NotServedError(
                f"{text}\nIt serves:\n{served or '  nothing'}\nMake calls like these, save the file again after calls "
                "like this one, or load it with strict=False, which compiles them."
            )
        self._warned = True
        warnings.warn(
            f"lampwork: {text} It is compiled, and so are further ones. See docs/shipping.md.",
            LampworkWarning,
            stacklevel=2,
        )
