"""What happened to one compiled function: counters while it runs, and the read-only snapshot users see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lampwork.errors import Diagnostic
from lampwork.ir.location import Location
from lampwork.ir.record import record

if TYPE_CHECKING:
    from lampwork.runtime.entry import Entry


@record
class Record:
    """One reason why calls ran eagerly, and how many did. `str()` gives file, line, reason and remedy."""

    diagnostic: Diagnostic
    count: int = 1

    @property
    def id(self) -> str:
        return self.diagnostic.id

    @property
    def reason(self) -> str:
        return self.diagnostic.reason

    @property
    def location(self) -> Location:
        return self.diagnostic.location

    @property
    def line(self) -> int:
        return self.diagnostic.location.line

    @property
    def remedy(self) -> str:
        return self.diagnostic.remedy

    def __str__(self) -> str:
        return f"{self.diagnostic} ({self.count} calls)"


class Counters:
    """Mutable counters of one compiled function. Counts may miss a few of concurrent calls; reasons are never lost."""

    def __init__(self) -> None:
        self.captures = 0
        self.calls = 0
        self.cache_hits = 0
        self.compile_seconds: dict[str, float] = {}
        self._breaks: dict[Diagnostic, int] = {}
        self._fallbacks: dict[Diagnostic, int] = {}
        self.cache_notes: list[str] = []

    def spent(self, stage: str, seconds: float) -> None:
        """Time that a stage of compiling or loading took."""
        self.compile_seconds[stage] = self.compile_seconds.get(stage, 0.0) + seconds

    def fell_back(self, diagnostic: Diagnostic, is_break: bool = False) -> None:
        """One call ran eagerly."""
        self._fallbacks[diagnostic] = self._fallbacks.get(diagnostic, 0) + 1
        if is_break:
            self._breaks[diagnostic] = self._breaks.get(diagnostic, 0) + 1

    def snapshot(self, entries: Iterable[Entry]) -> Mapping[str, Any]:
        """The mapping that `lampwork.stats` documents."""
        entries = tuple(entries)
        running = [entry for entry in entries if entry.host is not None]
        return MappingProxyType({
            "captures": self.captures,
            "entries": len(entries),
            "calls": self.calls,
            "breaks": tuple(Record(diagnostic, count) for diagnostic, count in self._breaks.items()),
            "fallbacks": tuple(Record(diagnostic, count) for diagnostic, count in self._fallbacks.items()),
            "native_kernels": sum(entry.kernels for entry in running),
            "launches": running[0].launches if running else 0,
            "extern_calls": MappingProxyType(dict(running[0].extern_calls() if running else {})),
            "cuda_graphs": tuple(entry.graphs.account() for entry in running if entry.graphs is not None),
            "cache_hits": self.cache_hits,
            "compile_seconds": MappingProxyType(dict(self.compile_seconds)),
            "cache_notes": tuple(self.cache_notes),
        })  # fmt: skip


def located(diagnostic: Diagnostic, location: Location) -> Diagnostic:
    return replace(diagnostic, location=location)
