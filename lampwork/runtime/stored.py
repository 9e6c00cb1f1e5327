"""Entries that were made elsewhere: out of a file that the user has loaded, the on-disk cache, or the shared one.

`Stored` finds the one that serves a call, and keeps what the function makes. What fails here costs a compile, and
nothing else; strict mode raises it.
"""

from __future__ import annotations

import logging
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
from lampwork.runtime.stats import noted

if TYPE_CHECKING:
    from lampwork.runtime.cache.entries import StoredEntries
    from lampwork.runtime.function import CompiledFunction
    from lampwork.runtime.shipped import Shipped

log = logging.getLogger("lampwork")

#: The level of LAMPWORK_DEBUG from which on stages are shown.
STAGES_SHOWN = 3


class Stored:
    """The stored entries of one compiled callable. Its lock is held by whoever calls."""

    def __init__(self, compiled: CompiledFunction) -> None:
        self.compiled = compiled
        #: What is stored on disk; None until a call has asked for it.
        self.on_disk: StoredEntries | None = None
        #: Entries from a file that the user has loaded (`lampwork.load`); None: there is no such file.
        self.shipped: Shipped | None = None
        #: Entries from that file and the on-disk cache that have not fitted a call of this process yet.
        self.waiting: tuple[Entry, ...] = ()

    def reset(self) -> None:
        """Forgets what was found; a loaded file's entries wait again."""
        for entry in self.waiting:
            entry.release()
        self.waiting, self.on_disk = (), None
        if self.shipped is not None:
            self.ship(self.shipped)

    def ship(self, shipped: Shipped) -> None:
        """From now on entries of a file wait for the calls that they fit. Raises LookupError where this process lacks
        what one of them names."""
        self.waiting = (*self.waiting, *shipped.entries(self.compiled))
        for artifact in shipped.artifacts:
            self.compiled.varies(artifact.varied)
        self.shipped = shipped

    @property
    def uses_cache(self) -> bool:
        if environment.debug >= STAGES_SHOWN or environment.stop_at:
            return False  # stored entries have no stages that could be shown or interpreted
        if self.shipped is not None and self.shipped.strict:
            return False
        return self.compiled.runs_pipeline and environment.cache and self.compiled.settings.options.cache

    # Finding one --------------------------------------------------------------------------------------------------

    def find(self, args: tuple, kwargs: dict) -> Entry | None:
        """An entry from a loaded file or the on-disk cache that serves this call, inserted.

        Those that do not fit wait for a call that they fit: the cache holds what every process compiled of this code,
        for other closures and other modules too, so they are none of the entries that `recompile_limit` counts. Once
        one fits, no more than that many are read.
        """
        for entry in self.waiting:
            if entry.holds(self.compiled.function, args, kwargs):
                self._serve(entry)
                return entry
        if not self.uses_cache:
            return None
        start = time.perf_counter()
        try:
            return self._read_cache(args, kwargs)
        except Exception as error:
            if environment.strict:
                raise
            self._failed("load", error)
            return None
        finally:
            self.compiled.counters.spent("load", time.perf_counter() - start)

    def find_added(self, waited: bool, args: tuple, kwargs: dict) -> Entry | None:
        """An entry that another process, or another machine, has stored since this one looked, inserted."""
        assert self.on_disk is not None
        try:
            found = self._first_fitting(self.on_disk.added(), args, kwargs)
            if found is None and cache_url():
                found = self._fetched(self.on_disk, waited, args, kwargs)
            return found
        except Exception as error:
            if environment.strict:
                raise
            self._failed("load", error)
            return None

    def find_with_states(self, args: tuple, kwargs: dict, states: _torch.InitialStates) -> Entry | None:
        """An entry that serves this call once the optimizers have the states that their first step begins with."""
        known = [entry for entry in (*self.compiled.entries, *self.waiting) if entry.artifact.initial_states]
        if not known:
            return None
        from lampwork.runtime.autograd.optimizer_states import make_initial_states

        function = self.compiled.function
        for entry in known:
            if make_initial_states(entry.artifact, function, args, kwargs, states):
                if entry.holds(function, args, kwargs):
                    if entry in self.waiting:
                        self._serve(entry)
                    return entry
                states.undo()
        return None

    def _read_cache(self, args: tuple, kwargs: dict) -> Entry | None:
        if self.on_disk is not None:
            return self._older(self.on_disk, args, kwargs)
        from lampwork.runtime.cache import entries as cache

        on_disk = self.on_disk = cache.StoredEntries(self.compiled.function, self.compiled.settings, self.note)
        found = self._first_fitting(on_disk.newest(), args, kwargs) or self._older(on_disk, args, kwargs)
        waits = environment.cache_wait and stances.in_force() == "default"  # fetched in this process's turn to compile
        if found is None and cache_url() and not waits:
            found = self._fetched(on_disk, False, args, kwargs)
        return found

    def _fetched(self, on_disk: StoredEntries, again: bool, args: tuple, kwargs: dict) -> Entry | None:
        """An entry out of the shared cache that serves this call, inserted."""
        found = self._first_fitting(on_disk.fetched(self.compiled.counters.cached, again), args, kwargs)
        return found or self._older(on_disk, args, kwargs)

    def _first_fitting(self, artifacts: Iterator[Artifact], args: tuple, kwargs: dict) -> Entry | None:
        """The first of `artifacts` that serves this call, inserted; no more than `recompile_limit` are read then."""
        found = None
        function, limit = self.compiled.function, self.compiled.settings.options.recompile_limit
        for count, artifact in enumerate(artifacts):
            if count >= limit and found is not None:
                break
            entry = self._entry_of(artifact)
            if entry is None:
                continue
            if found is None and entry.holds(function, args, kwargs):
                found = entry
                self._serve(entry)
                continue
            if found is None:
                self.note(f"an entry does not fit: {entry.why_missed(function, args, kwargs)}")
            self.waiting = (*self.waiting, entry)
        return found

    def _older(self, on_disk: StoredEntries, args: tuple, kwargs: dict) -> Entry | None:
        """One of those entries on disk that are loaded only where they fit a call, inserted."""
        function = self.compiled.function
        for artifact in on_disk.fitting(lambda guards: not explain_failure(guards, function, args, kwargs)):
            entry = self._entry_of(artifact)
            if entry is not None and entry.holds(function, args, kwargs):
                self._serve(entry)
                return entry
        return None

    def _entry_of(self, artifact: Artifact) -> Entry | None:
        """None where this process lacks what the artifact needs."""
        self.compiled.varies(artifact.varied)
        try:
            return self.compiled.entry_of(artifact)
        except Exception as error:
            self.note(f"an entry cannot serve here: {type(error).__name__}: {error}")
            return None

    def _serve(self, entry: Entry) -> None:
        compiled = self.compiled
        self.waiting = tuple(other for other in self.waiting if other is not entry)
        compiled.counters.cache_hits += 1
        if compiled.observer is not None:
            noted(compiled.observer.loaded, compiled, entry.artifact)
        compiled.insert(entry)

    # Keeping one --------------------------------------------------------------------------------------------------

    def keep(self, entry: Entry) -> None:
        """Stores an entry that was made."""
        if not self.uses_cache:
            return
        compiled = self.compiled
        try:
            from lampwork.runtime.cache import entries as cache

            cache.store(compiled.function, compiled.settings, entry.artifact, self.note, compiled.counters.cached)
        except Exception as error:
            if environment.strict:
                raise
            self._failed("store", error)

    def in_turn(self, args: tuple, kwargs: dict, states: _torch.InitialStates, make: Callable[[], Any]) -> Any:
        """`make()`; but where processes start at once, one of them asks the shared cache and compiles, and the others
        load what it stores."""
        on_disk = self.on_disk
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
