"""What happened to one compiled function: counters while it runs, and the read-only snapshot users see."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypedDict, cast

from lampwork import signals
from lampwork.errors import Diagnostic
from lampwork.ir.location import Location
from lampwork.ir.record import record

if TYPE_CHECKING:
    from lampwork.runtime.auto.function import Choice
    from lampwork.runtime.entry import Entry
    from lampwork.runtime.function import CompiledFunction


log = logging.getLogger("lampwork")

#: What is counted of entries on disk: written to the local folder; fetched from the shared place, or refused as nobody
#: says whose they are; written to it; and how often another process that compiled the same was waited for.
CACHE_COUNTS = ("stored", "fetched", "refused", "sent", "waited")


@record
class Record:
    """One reason, how often it came up, and the seconds it has cost so far, all times together.

    The cost of a fall-back is the eager call, of a break the native call, of a recompile the compile. `str()` gives all
    of it in one line.
    """

    diagnostic: Diagnostic
    count: int = 1
    seconds: float = 0.0

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
        each = f", {self.seconds / self.count * 1e3:.2f} ms each" if self.seconds else ""
        return f"{self.diagnostic} ({self.count} {'time' if self.count == 1 else 'times'}{each})"


class Stats(TypedDict):
    """What `lampwork.stats` returns, to type checkers; it says what each key means. The mapping itself is read-only."""

    captures: int
    entries: int
    graphs: int
    continuations: int
    calls: int
    breaks: tuple[Record, ...]
    fallbacks: tuple[Record, ...]
    recompiles: tuple[Record, ...]
    specialised: tuple[Diagnostic, ...]
    native_kernels: int
    launches: int
    extern_calls: Mapping[str, int]
    cuda_graphs: tuple[Mapping[str, Any], ...]
    cache_hits: int
    compile_seconds: Mapping[str, float]
    cache: Mapping[str, int]
    cache_notes: tuple[str, ...]
    choices: tuple[Choice, ...]


class _Tally:
    """How often each diagnostic came up and what it cost; nothing is lost when threads count at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[Diagnostic, tuple[int, float]] = {}

    def add(self, diagnostic: Diagnostic, seconds: float, count: int = 1) -> None:
        with self._lock:
            before, spent = self._found.get(diagnostic, (0, 0.0))
            self._found[diagnostic] = (before + count, spent + seconds)

    def merge(self, other: _Tally) -> None:
        for each in other.records():
            self.add(each.diagnostic, each.seconds, each.count)

    def records(self) -> tuple[Record, ...]:
        with self._lock:
            return tuple(Record(each, count, seconds) for each, (count, seconds) in self._found.items())


class Counters:
    """Mutable counters of one compiled function; threads may count at once."""

    def __init__(self) -> None:
        self.captures = 0
        self.calls = 0
        self.cache_hits = 0
        self.compile_seconds: dict[str, float] = {}
        self._breaks = _Tally()
        self._fallbacks = _Tally()
        self._recompiles = _Tally()
        self.cache_notes: list[str] = []
        self.cache = dict.fromkeys(CACHE_COUNTS, 0)

    def unlock(self) -> None:
        """New locks, in a forked child: the old ones may be held by threads that it does not have."""
        for tally in (self._breaks, self._fallbacks, self._recompiles):
            tally._lock = threading.Lock()

    def spent(self, stage: str, seconds: float) -> None:
        """Time that a stage of compiling or loading took."""
        self.compile_seconds[stage] = self.compile_seconds.get(stage, 0.0) + seconds

    def cached(self, what: str) -> None:
        """Something happened to an entry on disk: one of `CACHE_COUNTS`."""
        self.cache[what] += 1

    def fell_back(self, diagnostic: Diagnostic, is_break: bool = False) -> None:
        """One call runs eagerly. `took` adds what it cost."""
        self._fallbacks.add(diagnostic, 0.0)
        if is_break:
            self._breaks.add(diagnostic, 0.0)

    def took(self, diagnostic: Diagnostic, seconds: float, is_break: bool = False) -> None:
        """The eager call that `fell_back` counted has ended."""
        self._fallbacks.add(diagnostic, seconds, 0)
        if is_break:
            self._breaks.add(diagnostic, seconds, 0)

    def recompiled(self, diagnostic: Diagnostic, seconds: float) -> None:
        """A call was compiled although entries existed; `diagnostic` names the guard that failed."""
        self._recompiles.add(diagnostic, seconds)

    def broke(self, diagnostic: Diagnostic, seconds: float) -> None:
        """A call was divided by a break once; the native call there took so long."""
        self._breaks.add(diagnostic, seconds)

    def add(self, other: Counters) -> None:
        """Adds what another compiled function, a part of this one, has counted. Its calls are no calls of this one."""
        self.captures += other.captures
        self.cache_hits += other.cache_hits
        for stage, seconds in other.compile_seconds.items():
            self.spent(stage, seconds)
        self._breaks.merge(other._breaks)
        self._fallbacks.merge(other._fallbacks)
        self._recompiles.merge(other._recompiles)
        self.cache_notes += other.cache_notes
        for what, count in other.cache.items():
            self.cache[what] += count

    def snapshot(
        self, entries: Iterable[Entry], parts: Mapping[Any, CompiledFunction] | None = None, choices: tuple = ()
    ) -> Stats:
        """The mapping that `lampwork.stats` documents. `parts`: the continuations of the function's breaks."""
        entries = tuple(entries)
        parts = {} if parts is None else dict(parts)
        total = Counters()
        total.add(self)
        for part in parts.values():
            total.add(part.counters)
        continued = [entry for part in parts.values() for entry in part.entries]
        running = [entry for entry in (*entries, *continued) if entry.host is not None]
        found: Stats = {
            "captures": total.captures,
            "entries": len(entries) + len(continued),
            "graphs": sum(bool(entry.artifact.program.steps) for entry in running),
            "continuations": len(parts),
            "calls": self.calls,
            "breaks": total._breaks.records(),
            "fallbacks": total._fallbacks.records(),
            "recompiles": total._recompiles.records(),
            "specialised": tuple(
                dict.fromkeys(each for entry in (*entries, *continued) for each in entry.artifact.specialised)
            ),
            "native_kernels": sum(entry.kernels for entry in running),
            "launches": running[0].launches if running else 0,
            "extern_calls": MappingProxyType(dict(running[0].extern_calls() if running else {})),
            "cuda_graphs": tuple(entry.graphs.account() for entry in running if entry.graphs is not None),
            "cache_hits": total.cache_hits,
            "compile_seconds": MappingProxyType(dict(total.compile_seconds)),
            "cache": MappingProxyType(dict(total.cache)),
            "cache_notes": tuple(total.cache_notes),
            "choices": choices,
        }  # fmt: skip
        return cast(Stats, MappingProxyType(found))


def noted(count: Callable, *what: object) -> None:
    """`count(*what)`, of counters and tables: what fails there does not reach the call, but for what handlers raise."""
    try:
        count(*what)
    except Exception as error:
        if signals.raised_by_handler(error):
            raise
        log.exception("noting what happened to a call failed")
