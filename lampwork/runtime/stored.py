"""Entries that were made elsewhere: out of a file that the user has loaded, the on-disk cache, the shared one, or made
for a module of the same class (`siblings.py`).

`Stored` finds the one that serves a call, and keeps what the function makes. What fails here costs a compile, and
nothing else; strict mode raises it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from lampwork import _torch
from lampwork.config import cache_url, environment
from lampwork.errors import CompileError, as_failure
from lampwork.ir.artifact import Artifact
from lampwork.runtime import stances
from lampwork.runtime.entry import Entry
from lampwork.runtime.guards.compile import explain_failure
from lampwork.runtime.siblings import Known, known_of
from lampwork.runtime.stats import noted

if TYPE_CHECKING:
    from lampwork.runtime.cache.entries import StoredEntries
    from lampwork.runtime.function import CompiledFunction
    from lampwork.runtime.shipped import Shipped

log = logging.getLogger("lampwork")


class Waiting:
    """An artifact that has fitted no call of this function yet. An entry, whose guards are compiled, is made of it
    where it fits one."""

    def __init__(self, artifact: Artifact, make: Callable[[Artifact], Entry | None], known: Known) -> None:
        self.artifact = artifact
        self.entry: Entry | None = None
        #: It names what this process lacks.
        self.is_void = False
        self._make = make
        self._known = known

    def made(self) -> Entry | None:
        """None where this process lacks what it names."""
        if self.entry is None and not self.is_void:
            self.entry = self._make(self.artifact)
            self.is_void = self.entry is None
        return self.entry

    def fitting(self, function: Callable, args: tuple, kwargs: dict) -> Entry | None:
        """The entry, if it serves this call."""
        if self.entry is None and self.why_missed(function, args, kwargs):
            return None
        entry = self.made()
        return entry if entry is not None and entry.holds(function, args, kwargs) else None

    def why_missed(self, function: Callable, args: tuple, kwargs: dict) -> str:
        """A guard that does not hold for this call, in words."""
        return self._known.why_missed(self.artifact, function, args, kwargs)

    def release(self) -> None:
        if self.entry is not None:
            self.entry.release()


class Stored:
    """The entries of one compiled callable that were made elsewhere. Its lock is held by whoever calls."""

    def __init__(self, compiled: CompiledFunction) -> None:
        self.compiled = compiled
        #: Entries from a file that the user has loaded (`lampwork.load`); None: there is no such file.
        self.shipped: Shipped | None = None
        #: Those from that file, from the on-disk cache, and of equal modules, that have fitted no call yet.
        self.waiting: tuple[Waiting, ...] = ()
        self._known: Known | None = None
        #: Artifacts of `known` that this function has seen, by id.
        self._seen: dict[int, Artifact] = {}

    @property
    def known(self) -> Known:
        """What this process knows of the code."""
        if self._known is None:
            self._known = known_of(self.compiled.function, self.compiled.settings)
        return self._known

    def reset(self) -> None:
        """Forgets what was found; a loaded file's entries wait again."""
        for each in self.waiting:
            each.release()
        if self._known is not None:
            self._known.forget()
        self.waiting, self._known, self._seen = (), None, {}
        if self.shipped is not None:
            self._wait(self.shipped)

    def ship(self, shipped: Shipped) -> None:
        """From now on entries of a file wait for the calls that they fit. Raises LookupError where this process lacks
        what one of them names."""
        entries = shipped.entries(self.compiled)
        self.shipped = shipped
        for waiting, entry in zip(self._wait(shipped), entries, strict=True):
            waiting.entry = entry

    def _wait(self, shipped: Shipped) -> tuple[Waiting, ...]:
        """Those of the file, from now on waiting. An entry is made of one where it fits a call: the process may no
        longer have what another names (modules that were removed)."""
        added = tuple([Waiting(artifact, self._entry_of, self.known) for artifact in shipped.artifacts])
        for artifact in shipped.artifacts:
            self.compiled.varies(artifact.varied)
        self.waiting = (*self.waiting, *added)
        return added

    @property
    def _reuses(self) -> bool:
        """Whether anything but what a file holds may serve."""
        if self.compiled.observer is not None and self.compiled.observer.needs_stages:
            return False
        if self.shipped is not None and self.shipped.strict:
            return False
        return self.compiled.runs_pipeline

    @property
    def uses_cache(self) -> bool:
        return self._reuses and environment.cache and self.compiled.settings.options.cache

    # Finding one --------------------------------------------------------------------------------------------------

    def find(self, args: tuple, kwargs: dict) -> Entry | None:
        """An entry from a loaded file, of an equal module or from the on-disk cache that serves this call, inserted.

        Those that do not fit wait for a call that they fit: the cache holds what every process compiled of this code,
        for other closures and other modules too, so they are none of the entries that `recompile_limit` counts. Once
        one fits, no more than that many are read.
        """
        for waiting in self.waiting:
            entry = waiting.fitting(self.compiled.function, args, kwargs)
            if entry is not None:
                self._serve(entry, waiting)
                return entry
        if not self._reuses:
            return None
        start = time.perf_counter()
        try:
            with self.known.lock:
                found = self._first_fitting(self.known.artifacts(), args, kwargs)
                return found or (self._read_cache(args, kwargs) if self.uses_cache else None)
        except Exception as error:
            if environment.strict:
                raise
            self._failed("load", error)
            return None
        finally:
            self.compiled.counters.spent("load", time.perf_counter() - start)

    def unlock(self) -> None:
        """In a forked child, which has none of the threads that may hold the lock."""
        if self._known is not None:
            self._known.lock = threading.RLock()

    def find_added(self, waited: bool, args: tuple, kwargs: dict) -> Entry | None:
        """An entry that another process, or another machine, has stored since this one looked, inserted."""
        on_disk = self.known.on_disk
        assert on_disk is not None
        try:
            with self.known.lock:
                found = self._first_fitting(self._kept(on_disk.added()), args, kwargs)
                if found is None and cache_url():
                    found = self._fetched(on_disk, waited, args, kwargs)
                return found
        except Exception as error:
            if environment.strict:
                raise
            self._failed("load", error)
            return None

    def find_with_states(self, args: tuple, kwargs: dict, states: _torch.InitialStates) -> Entry | None:
        """An entry that serves this call once the optimizers have the states that their first step begins with."""
        function = self.compiled.function
        known: list[tuple[Entry | Waiting, Waiting | None]] = [(entry, None) for entry in self.compiled.entries]
        known += [(waiting, waiting) for waiting in self.waiting]
        known = [pair for pair in known if pair[0].artifact.initial_states]
        if not known:
            return None
        from lampwork.runtime.autograd.optimizer_states import make_initial_states

        for each, waiting in known:
            if make_initial_states(each.artifact, function, args, kwargs, states):
                entry = each.made() if isinstance(each, Waiting) else each
                if entry is not None and entry.holds(function, args, kwargs):
                    if waiting is not None:
                        self._serve(entry, waiting)
                    return entry
                states.undo()
        return None

    def _read_cache(self, args: tuple, kwargs: dict) -> Entry | None:
        known = self.known
        if known.on_disk is not None:
            known.on_disk.note = self.note
            return self._older(known.on_disk, args, kwargs)
        from lampwork.runtime.cache import entries as cache

        on_disk = known.on_disk = cache.StoredEntries(self.compiled.function, self.compiled.settings, self.note)
        found = self._first_fitting(self._kept(on_disk.newest()), args, kwargs) or self._older(on_disk, args, kwargs)
        waits = environment.cache_wait and stances.in_force() == "default"  # fetched in this process's turn to compile
        if found is None and cache_url() and not waits:
            found = self._fetched(on_disk, False, args, kwargs)
        return found

    def _fetched(self, on_disk: StoredEntries, again: bool, args: tuple, kwargs: dict) -> Entry | None:
        """An entry out of the shared cache that serves this call, inserted."""
        fetched = self._kept(on_disk.fetched(self.compiled.counters.cached, again))
        return self._first_fitting(fetched, args, kwargs) or self._older(on_disk, args, kwargs)

    def _kept(self, artifacts: Iterator[Artifact]) -> Iterator[Artifact]:
        """`artifacts`, each known to equal modules from then on."""
        for artifact in artifacts:
            self.known.add(artifact)
            yield artifact

    def _first_fitting(self, artifacts: Iterator[Artifact], args: tuple, kwargs: dict) -> Entry | None:
        """The first of `artifacts` that serves this call, inserted; no more than `recompile_limit` are read then."""
        found = None
        function, limit = self.compiled.function, self.compiled.settings.options.recompile_limit
        for count, artifact in enumerate(artifacts):
            if count >= limit and found is not None:
                break
            if id(artifact) in self._seen:
                continue
            self._seen[id(artifact)] = artifact
            self.compiled.varies(artifact.varied)
            waiting = Waiting(artifact, self._entry_of, self.known)
            if found is None:
                found = waiting.fitting(function, args, kwargs)
                if found is not None:
                    self._serve(found, waiting)
                    continue
                if waiting.is_void:
                    continue
                self.note(f"an entry does not fit: {waiting.why_missed(function, args, kwargs)}")
            self.waiting = (*self.waiting, waiting)
        return found

    def _older(self, on_disk: StoredEntries, args: tuple, kwargs: dict) -> Entry | None:
        """One of those entries on disk that are loaded only where they fit a call, inserted."""
        function = self.compiled.function
        fitting = on_disk.fitting(lambda guards: not explain_failure(guards, function, args, kwargs))
        return self._first_fitting(self._kept(fitting), args, kwargs)

    def _entry_of(self, artifact: Artifact) -> Entry | None:
        """None where this process lacks what the artifact needs."""
        try:
            return self.compiled.entry_of(artifact)
        except Exception as error:
            self.note(f"an entry cannot serve here: {type(error).__name__}: {error}")
            return None

    def _serve(self, entry: Entry, waiting: Waiting) -> None:
        compiled = self.compiled
        self.waiting = tuple(other for other in self.waiting if other is not waiting)
        compiled.counters.cache_hits += 1
        if compiled.observer is not None:
            noted(compiled.observer.loaded, compiled, entry.artifact)
        compiled.insert(entry)

    # Keeping one --------------------------------------------------------------------------------------------------

    def keep(self, entry: Entry) -> None:
        """Stores an entry that was made, for other processes and for equal modules in this one."""
        if self._reuses:
            self._seen[id(entry.artifact)] = entry.artifact
            self.known.add(entry.artifact)
        if not self.uses_cache:
            return
        compiled = self.compiled
        try:
            from lampwork.runtime.cache import entries as cache

            path = cache.store(
                compiled.function, compiled.settings, entry.artifact, self.note, compiled.counters.cached
            )
            if path is not None and self.known.on_disk is not None:
                self.known.on_disk.seen.add(path.name)
        except Exception as error:
            if environment.strict:
                raise
            self._failed("store", error)

    def in_turn(self, args: tuple, kwargs: dict, states: _torch.InitialStates, make: Callable[[], Any]) -> Any:
        """`make()`; but where processes start at once, one of them asks the shared cache and compiles, and the others
        load what it stores."""
        on_disk = self.known.on_disk
        if not environment.cache_wait or on_disk is None or on_disk.key is None or not self.uses_cache:
            return make()
        from lampwork.runtime.cache import ranks

        counters = self.compiled.counters
        with ranks.turn(on_disk.key, args, kwargs, self.note, counters.cached) as turn:
            found = self.find_added(turn.has_waited, args, kwargs) or self.find_with_states(args, kwargs, states)
            if found is not None:
                return found.serve
            before = counters.cache["stored"]
            made = make()
            turn.stored = counters.cache["stored"] > before
            return made

    # What is said of it -------------------------------------------------------------------------------------------

    def note(self, text: str) -> None:
        self.compiled.counters.cache_notes.append(text)
        log.info("%s: on-disk cache: %s", self.compiled.name, text)

    def _failed(self, what: str, error: Exception) -> None:
        compiled = self.compiled
        diagnostic = as_failure(CompileError(f"cache ({what})", f"{type(error).__name__}: {error}"), "")
        self.note(diagnostic.reason)
        text = f"{compiled.name}: {diagnostic.reason}; it is compiled instead."
        compiled.warn_once(diagnostic.reason, text, diagnostic)
