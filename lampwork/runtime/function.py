"""The compiled callable: finds the entry that serves a call, or has one made.

Entries are an immutable tuple, swapped whole: calls read it without a lock. The lock is taken to compile and to insert.
Most recently used entries come first.
"""

from __future__ import annotations

import importlib
import inspect
import logging
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch

from lampwork import _torch, collector, forks, profiled, signals
from lampwork._torch import peer_frame
from lampwork.config import Settings, environment
from lampwork.errors import (
    CompileError,
    Diagnostic,
    DynamicSizeError,
    GraphBreak,
    LampworkError,
    LampworkWarning,
    NotServedError,
    PassError,
    RecompileError,
    as_failure,
)
from lampwork.ir.artifact import Artifact
from lampwork.ir.continuation import Resumption
from lampwork.ir.location import Location, name_of
from lampwork.ir.program import Check
from lampwork.ir.region import Continue
from lampwork.runtime import stances
from lampwork.runtime.caught import Raised
from lampwork.runtime.devices import foreign_device, no_back_end, start_gpu_compilers
from lampwork.runtime.entry import MISS, Entry
from lampwork.runtime.launch.host import AssumptionFailed, Rerun, SideNotAssumed, SizeNotAssumed
from lampwork.runtime.observer import Observer, Run
from lampwork.runtime.stats import Counters, noted
from lampwork.runtime.stored import Stored, Waiting

if TYPE_CHECKING:
    from lampwork.runtime.auto.background import Background
    from lampwork.runtime.guards.dispatch import Dispatch
    from lampwork.runtime.guards.varying import Varying
    from lampwork.runtime.shipped import Shipped

log = logging.getLogger("lampwork")

#: So many entries are tried in turn for less than it costs to find one.
FEW = 3

#: After so many captures that ended in a break or a failure nothing was learnt from, calls stop trying.
CAPTURE_ATTEMPTS = 3

#: Errors of ours that the user asked for: they are no failures of the compiler.
_ASKED_FOR = (DynamicSizeError, LampworkWarning, NotServedError, PassError, RecompileError)

_compiling = threading.local()
_all: weakref.WeakSet[CompiledFunction] = weakref.WeakSet()


def reset_all() -> None:
    """Every compiled function of this process forgets its entries and counters."""
    for compiled in list(_all):
        compiled.reset()
    _release_workspaces()


def _release_workspaces() -> None:
    arenas = sys.modules.get("lampwork.runtime.launch.arenas")
    if arenas is not None:  # programs on a GPU have run
        arenas.release_all()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """What a compile needs of the process: no handlers of signals, no forks, no collections of the many objects that it
    makes, and that what it runs stays where profiles look for it."""
    with signals.deferred(), forks.compiling(), profiled.kept(), collector.paused():
        yield


@forks.in_child
def _in_child() -> None:
    """A forked child holds no lock of a thread that it does not have."""
    for compiled in list(_all):
        compiled._lock = threading.RLock()
        compiled.counters.unlock()
        compiled.stored.unlock()


def _observer_of_environment() -> Observer | None:
    """What LAMPWORK_DEBUG, LAMPWORK_STOP_AT and LAMPWORK_RECORD ask for."""
    if not environment.debug and not environment.stop_at and not environment.record:
        return None
    return importlib.import_module("lampwork.debug.observers").of_environment()


def _limit_of(settings: Settings) -> Diagnostic:
    return Diagnostic(
        "recompile-limit",
        f"{settings.options.recompile_limit} entries were compiled; further calls that fit none run eagerly",
        remedy="Raise options={'recompile_limit': N}, or keep the value that changes out of the program.",
    )


def is_compiling() -> bool:
    """This thread is inside a capture: compiled functions called from there run as they were written."""
    return getattr(_compiling, "active", False)


class CompiledFunction:
    """The entries of one compiled callable, and the road from a call to one of them.

    `function` is what was compiled (a function, bound method, module or callable object): the `Root` of every source.
    `make_entry(function, args, kwargs, settings, eagerly)` makes an entry; the default runs the pipeline.
    """

    def __init__(
        self,
        function: Callable,
        settings: Settings,
        make_entry: Callable[..., Entry] | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.observer = observer if observer is not None else _observer_of_environment()
        self.function = function
        self.settings = settings
        self.serves: tuple[Callable, ...] = ()
        self.counters = Counters()
        self._make_entry = make_entry
        self._entries: dict[Callable, Entry] = {}
        #: Whether a call came that no entry served.
        self._has_run = False
        #: What finds one of many entries; None where there are few.
        self._dispatch: Dispatch | None = None
        self._lock = threading.RLock()
        self._failures = 0
        self._last_failure: tuple[Diagnostic, bool] | None = None
        self._warned: set[str] = set()
        #: Entries out of a loaded file and the caches.
        self.stored = Stored(self)
        #: Sizes and integers that differed between calls: symbols in the entries compiled from then on.
        self._varied: frozenset[Varying] = frozenset()
        #: Sizes that contents decide are symbols; no more once one was not what a program took it for.
        self._sizes_by_contents = True
        self.root: CompiledFunction = self
        #: Where misses are compiled while calls go on (mode "auto"); None: the call waits.
        self.background: Background | None = None
        #: Of calls that break, by where they go on; shared by all entries of this function.
        self.continuations: dict[Resumption, CompiledFunction] = {}
        _all.add(self)

    @property
    def name(self) -> str:
        return name_of(self.function)

    @property
    def is_foreign(self) -> bool:
        """Whether another back end makes its entries."""
        return self._make_entry is not None

    @property
    def choices(self) -> tuple:
        """What mode "auto" has chosen, for each class of calls."""
        return ()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Most recently used first."""
        return tuple(self._entries[serve] for serve in self.serves)

    def reset(self) -> None:
        """Forget all entries and counters; memory they kept is given back."""
        with self._lock:
            for entry in self.entries:
                entry.release()
            self.serves, self._entries, self.counters = (), {}, Counters()
            self._dispatch = None
            self._failures, self._last_failure = 0, None
            self._warned.clear()
            self._varied = frozenset()
            self._sizes_by_contents = True
            self.continuations = {}
            self.stored.reset()

    def ship(self, shipped: Shipped) -> None:
        """From now on entries of a file wait for the calls that they fit. Raises LookupError where this process lacks
        what one of them names."""
        with self._lock:
            self.stored.ship(shipped)

    @property
    def shipped(self) -> Shipped | None:
        """Entries from a file that the user has loaded (`lampwork.load`); None: there is no such file."""
        return self.stored.shipped

    @property
    def runs_pipeline(self) -> bool:
        """Whether entries are made by the pipeline, as stored ones were."""
        return self._make_entry is None

    def varies(self, varying: frozenset[Varying]) -> None:
        """Sizes and integers that are symbols in the entries compiled from now on."""
        self._varied |= varying

    # Breaks -------------------------------------------------------------------------------------------------------

    def continuation(self, resumption: Resumption) -> CompiledFunction:
        """What goes on there with live values."""
        found = self.continuations.get(resumption)
        if found is None:
            with self._lock:
                found = self.continuations.get(resumption)
                if found is None:
                    from lampwork.runtime.leave.continuation import Continuation

                    found = Continuation(self, resumption)
                    shipped = self.shipped.continued(resumption) if self.shipped is not None else None
                    if shipped is not None:
                        found.ship(shipped)
                    self.continuations[resumption] = found
        return found

    def break_point(self, outcome: Continue) -> tuple[Callable, Callable | None]:
        """What an entry that ends at a break needs: what makes its result, (callable, args, kwargs, live values) ->
        suspended call; and what makes a call and runs it to its end, where that is this function's business."""
        from lampwork.runtime.leave.continuation import BreakPoint, drive

        return BreakPoint(self.root, outcome).suspend, drive if self.drives else None

    #: The code of the function by which users call this, where they have one.
    wrapper_code: CodeType | None = None
    #: Compiles another function with the same settings.
    again: Callable[[Callable], Any] | None = None

    def __reduce__(self) -> Any:
        from lampwork.runtime.pickled import reduce_compiled

        return reduce_compiled(self)

    def continued_natively(self, frames: Callable, values: tuple, error: Exception) -> Any:
        """What suspended frames return when the continuation for them cannot be had: nothing of it has run."""
        if environment.strict or signals.raised_by_handler(error):
            raise error
        cause = CompileError("continuation", f"{type(error).__name__}: {error}", location=line_of(self.function))
        diagnostic = as_failure(cause, "The rest of the call ran eagerly.")
        text = f"{self.name}: {cause} The rest of the call runs eagerly."
        self.warn_once(f"{cause}", text, diagnostic)
        self.fell_back(diagnostic, 0.0)
        return frames(*values)

    #: Calls return results only; those of a continuation may be suspended again.
    drives = True

    # A call --------------------------------------------------------------------------------------------------------

    def call(self, args: tuple, kwargs: dict) -> Any:
        """The result of one call, from an entry whose guards hold; else compiles one, else runs eagerly."""
        counters = self.counters
        counters.calls += 1
        function = self.function
        if (stances.is_set or peer_frame()) and stances.is_eager():
            return self._eagerly(stances.not_compiled("force_eager"), False, args, kwargs)
        serves = self.serves
        dispatch = self._dispatch
        try:
            if dispatch is not None:
                result = self._dispatched(dispatch, args, kwargs)
                if result is not MISS:
                    return result
                serves = ()
            for serve in serves:
                result = serve(function, args, kwargs)
                if result is not MISS:
                    if serve is not serves[0]:
                        self._promote(serve)
                    return result
        except Rerun as stop:
            failure = stop
        else:
            return self._miss(args, kwargs)
        return self._failed_run(failure, args, kwargs)  # out here an error of eager's has no context of ours

    def _dispatched(self, dispatch: Dispatch, args: tuple, kwargs: dict) -> Any:
        """As `call`, where there are many entries: `MISS` where none serves."""
        if dispatch.unlooked > 0:
            dispatch.unlooked -= 1
            return self._eagerly(_limit_of(self.settings), False, args, kwargs)
        function, entries = self.function, self._entries
        place, likely = self._likely(dispatch, args, kwargs)
        if likely is not None:
            result = likely(function, args, kwargs)
            if result is not MISS:
                if dispatch.unserved:
                    dispatch.unserved = 0
                return result
            if likely in entries:
                noted(dispatch.missed, entries[likely].artifact.guards, function, args, kwargs)
        for serve in self.serves:
            if serve is not likely:
                result = serve(function, args, kwargs)
                if result is not MISS:
                    dispatch.unserved = 0
                    if place is not None:
                        dispatch.served(place, serve)
                    return result
        return MISS

    def _likely(self, dispatch: Dispatch, args: tuple, kwargs: dict) -> tuple[Any, Callable | None]:
        """As `Dispatch.first`; what fails in there costs the table, and not the call."""
        try:
            return dispatch.first(self.function, args, kwargs)
        except Exception as error:
            if environment.strict or signals.raised_by_handler(error):
                raise
            log.exception("%s: entries are tried in turn", self.name)
            self._dispatch = None
            return None, None

    def _promote(self, serve: Callable) -> None:
        """Moves `serve` to the front; not while another thread compiles, as this call has been served."""
        if self._lock.acquire(blocking=False):
            try:
                if serve in self._entries:
                    self.serves = (serve, *(other for other in self.serves if other is not serve))
            finally:
                self._lock.release()

    def _eagerly(self, diagnostic: Diagnostic, is_break: bool, args: tuple, kwargs: dict) -> Any:
        counters = self.counters
        noted(counters.fell_back, diagnostic, is_break)
        if self.observer is not None:
            noted(self.observer.fell_back, self, diagnostic)
        start = time.perf_counter()
        try:
            return self.function(*args, **kwargs)
        finally:
            noted(counters.took, diagnostic, time.perf_counter() - start, is_break)

    def _miss(self, args: tuple, kwargs: dict) -> Any:
        """The result of a call that no entry in memory serves. Whatever fails in here happens before any effect of the
        call, which then runs eagerly."""
        if is_compiling() or sys.is_finalizing():  # an interpreter that ends imports nothing any more
            return self.function(*args, **kwargs)
        if self.background is not None and self.background.can_wait(args, kwargs):
            then = self.background.asked(self, args, kwargs)
            result = self.function(*args, **kwargs)
            if then is not None:
                then()
            return result
        try:
            serve, states = self._road(args, kwargs)
        except _ASKED_FOR:
            raise
        except signals.HandlerRaised as stop:
            raise stop.error from None
        except Exception as error:
            if environment.strict or (self.settings.fullgraph and isinstance(error, GraphBreak)):
                raise
            if signals.raised_by_handler(error):  # before they were made to wait
                raise
            serve, states = self._compiler_failed(error, args, kwargs), None
        if isinstance(serve, Diagnostic):
            return self._eagerly(serve, self._last_was_break(serve), args, kwargs)
        failure = None
        try:
            result = serve(self.function, args, kwargs)
        except Rerun as stop:
            failure = stop
        if failure is not None:
            if states is not None:
                states.undo()
            return self._failed_run(failure, args, kwargs)
        if result is MISS:  # another thread changed what was read, between the check and this call
            return self._eagerly(_UNSTABLE, False, args, kwargs)
        return result

    def prepare(self, args: tuple, kwargs: dict) -> bool:
        """Makes sure that such calls are served, in a thread that does not make them; False where nothing ever will.

        Raises what the user asked for: a break where there may be none, a size that must not be a number.
        """
        try:
            serve, states = self._road(args, kwargs, beside=True)
        except _ASKED_FOR:
            raise
        except Exception as error:
            if environment.strict or (self.settings.fullgraph and isinstance(error, GraphBreak)):
                raise
            serve, states = self._compiler_failed(error, args, kwargs), None
        if states is not None:
            states.undo()
        if not isinstance(serve, Diagnostic):
            return True
        noted(self.counters.fell_back, serve, self._last_was_break(serve))
        return self._failures < CAPTURE_ATTEMPTS and len(self.serves) < self.settings.options.recompile_limit

    def _road(
        self, args: tuple, kwargs: dict, beside: bool = False
    ) -> tuple[Callable | Diagnostic, _torch.InitialStates | None]:
        """What serves this call, or why it runs eagerly; and the states of optimizers that were made for it.

        beside   the program goes on meanwhile, and may change what a new entry was made for
        """
        if _torch.active_modes():
            return _MODES_ACTIVE, None
        device = foreign_device(self.function, args, kwargs)
        if device:
            diagnostic = no_back_end(device)
            self.warn_once(f"device {device}", f"{self.name}: {diagnostic}", diagnostic)
            return diagnostic, None
        states = _torch.InitialStates()
        with _undisturbed(), self._lock:
            try:
                return self._serving(args, kwargs, states, beside), states
            except BaseException:
                states.undo()
                raise

    def _last_was_break(self, diagnostic: Diagnostic) -> bool:
        return self._last_failure is not None and self._last_failure == (diagnostic, True)

    def _serving(self, args: tuple, kwargs: dict, states: _torch.InitialStates, beside: bool) -> Callable | Diagnostic:
        """A function that serves this call, made if need be; or why the call must run eagerly. Holds the lock.
        `states`: where states of optimizers are made that an entry takes for granted."""
        function = self.function
        for serve in self.serves:  # another thread may have made it while this one waited
            entry = self._entries[serve]
            if entry.holds(function, args, kwargs):
                return serve
        stored = self.stored.find(args, kwargs) or self.stored.find_with_states(args, kwargs, states)
        if stored is not None:
            return stored.serve
        if self.shipped is not None:
            self.shipped.missed(self, args, kwargs)
        if len(self.serves) >= self.settings.options.recompile_limit:
            return self._limit_reached(args, kwargs)
        if self._failures >= CAPTURE_ATTEMPTS:
            assert self._last_failure is not None
            return self._last_failure[0]
        forbidden = self._forbidden(args, kwargs)
        if forbidden is not None:
            return forbidden
        if not self.serves:
            self._note_what_varied(args, kwargs)
            return self.stored.in_turn(args, kwargs, states, lambda: self._compile(args, kwargs, states, beside))
        from lampwork.runtime.guards.recompiles import recompile

        why = recompile(self.entries[0].artifact.guards, function, args, kwargs)
        log.info("%s: compiling again: %s", self.name, why)
        self._note_what_varied(args, kwargs)
        start = time.perf_counter()
        if self.observer is not None:
            noted(self.observer.recompiled, self, why)
        captures = self.counters.captures
        made = self.stored.in_turn(args, kwargs, states, lambda: self._compile(args, kwargs, states, beside))
        if not isinstance(made, Diagnostic) and self.counters.captures > captures:
            noted(self.counters.recompiled, why, time.perf_counter() - start)
        return made

    def _forbidden(self, args: tuple, kwargs: dict) -> Diagnostic | None:
        """Why this call is not compiled by the program's own word; None where it may be. Raises RecompileError."""
        stance = stances.in_force()
        fails = stance == "fail_on_recompile"
        if fails or (self.serves and _torch.peer_raises_on_recompile()):
            known: tuple[Entry | Waiting, ...] = (*self.entries, *self.stored.waiting)
            why = known[0].why_missed(self.function, args, kwargs) if known else "nothing is compiled yet"
            if fails:
                what, remedy = "the stance is 'fail_on_recompile'", "lampwork.set_stance('default')"
            else:
                what, remedy = "error_on_recompile is set", "torch._dynamo.config.error_on_recompile = False"
            raise RecompileError(
                f"{self.name} would be compiled, and {what}: {why}. Call it on such inputs before, or write {remedy}"
            )
        is_first, self._has_run = not self._has_run, True
        if stance == "eager_on_recompile" or (stance == "eager_then_compile" and is_first):
            return stances.not_compiled(stance)
        return None

    def _note_what_varied(self, args: tuple, kwargs: dict) -> None:
        """A call that misses every entry, and one of them by sizes or integers alone: those vary. So do iterators that
        keep it from several."""
        if not (self.serves or self.stored.waiting):
            return
        from lampwork.runtime.guards.varying import MOST_TURNS, between_modules, what_turns, what_varied

        entries: tuple[Entry | Waiting, ...] = (*self.entries, *self.stored.waiting)
        if len(entries) >= MOST_TURNS:
            for entry in entries:
                turns = what_turns(entry.artifact.guards, self.function, args, kwargs)
                self._varied |= turns
                if turns and entry in self.entries:
                    self._remove(entry)  # the turns that come now share entries, for which there shall be room
        if self.settings.dynamic is not False:
            own = [entry.artifact.guards for entry in self.entries]
            found = what_varied(own, self._varied, self.function, args, kwargs)
            if not found:
                others = [waiting.artifact.guards for waiting in self.stored.waiting]
                found = between_modules(what_varied(others, self._varied, self.function, args, kwargs))
            self._varied |= found

    def _compile(self, args: tuple, kwargs: dict, states: _torch.InitialStates, beside: bool) -> Callable | Diagnostic:
        start = time.perf_counter()
        _compiling.active = True
        try:
            entry = self._fitting_entry(args, kwargs, states, beside)
            if entry is None:
                states.undo()
                return _UNSTABLE
        except GraphBreak as stop:
            states.undo()
            if self.settings.fullgraph:
                raise
            return self._remember_failure(stop.diagnostic, True)
        except DynamicSizeError:
            raise
        except PassError:
            states.undo()
            raise
        except Exception as error:
            states.undo()
            if environment.strict:
                raise
            return self._compiler_failed(error, args, kwargs)
        finally:
            _compiling.active = False
            log.info("%s: compiled in %.3f s", self.name, time.perf_counter() - start)
        self.stored.keep(entry)
        return entry.serve

    def _fitting_entry(self, args: tuple, kwargs: dict, states: _torch.InitialStates, beside: bool) -> Entry | None:
        """An entry that serves this call, inserted. Capture may load modules that register themselves where the program
        looks (`torch.func` and the registry of trees): the entry made after that fits. None where other threads run,
        who may change what the program reads each time."""
        for _ in range(2):
            entry = self._new_entry(args, kwargs, states)
            self.insert(entry)
            try:
                if beside or entry.holds(self.function, args, kwargs):
                    return entry
            except BaseException:
                self._remove(entry)
                raise
            why = entry.why_missed(self.function, args, kwargs)
            log.info("%s: captured again, as compiling it changed what it reads: %s", self.name, why)
            self._remove(entry)
        if threading.active_count() > 1:
            return None
        raise CompileError("guards", f"the new entry does not serve the call it was made for: {why}")

    def _new_entry(self, args: tuple, kwargs: dict, states: _torch.InitialStates) -> Entry:
        self.counters.captures += 1
        if self._make_entry is not None:
            return self._make_entry(self.function, args, kwargs, self.settings, self._eagerly)
        start_gpu_compilers(self.function, args, kwargs)
        pipeline = importlib.import_module("lampwork.pipeline")  # every compiler stage: only on a miss
        start = time.perf_counter()
        watch = self.observer.compile(self, args, kwargs) if self.observer is not None else None
        artifact = pipeline.compile_call(
            self.function,
            args,
            kwargs,
            self.settings,
            watch.stage if watch is not None else None,
            varied=self._varied,
            contents=self._sizes_by_contents,
            states=states,
        )
        for stage, seconds in artifact.compile_seconds.items():
            self.counters.spent(stage, seconds)
        instead = watch.finished(artifact, time.perf_counter() - start) if watch is not None else None
        start = time.perf_counter()
        run, run_backward = instead or (None, None)
        entry = self.entry_of(artifact, run, run_backward, made_for=self.function)
        self.counters.spent("entry", time.perf_counter() - start)
        return entry

    def entry_of(
        self,
        artifact: Artifact,
        run: Run | None = None,
        run_backward: Run | None = None,
        made_for: Callable | None = None,
    ) -> Entry:
        """An entry of this function. `made_for`: as for `Entry`. Raises LookupError where this process lacks what the
        artifact names."""
        exact = self.settings if self.settings.options.exact else None
        return Entry(
            artifact,
            self._eagerly,
            run,
            self.settings.mode,
            self.break_point,
            self.fell_back,
            run_backward,
            exact,
            made_for,
        )

    def fell_back(self, diagnostic: Diagnostic, seconds: float) -> None:
        """Eager has done a part of a call, in `seconds`."""
        if self.observer is not None:
            noted(self.observer.fell_back, self, diagnostic)
        noted(self.counters.fell_back, diagnostic)
        noted(self.counters.took, diagnostic, seconds)

    def insert(self, entry: Entry) -> None:
        self._entries = {**self._entries, entry.serve: entry}
        self.serves = (entry.serve, *self.serves)
        if len(self.serves) > FEW and self._dispatch is None:
            from lampwork.runtime.guards.dispatch import Dispatch

            self._dispatch = Dispatch()

    def _remove(self, entry: Entry) -> None:
        self.serves = tuple(serve for serve in self.serves if serve is not entry.serve)
        self._entries = {serve: other for serve, other in self._entries.items() if other is not entry}
        if self._dispatch is not None:
            self._dispatch.forget()

    # What goes wrong -----------------------------------------------------------------------------------------------

    def _remember_failure(self, diagnostic: Diagnostic, is_break: bool) -> Diagnostic:
        self._failures += 1
        self._last_failure = (diagnostic, is_break)
        return diagnostic

    def _compiler_failed(self, error: Exception, args: tuple, kwargs: dict) -> Diagnostic:
        cause: CompileError
        if isinstance(error, CompileError):
            cause = error
        elif isinstance(error, Rerun):  # guards that fail while an entry is looked for
            inner = error.__cause__
            cause = CompileError(error.stage, f"{type(inner).__name__}: {inner}")
        else:
            cause = CompileError("runtime", f"{type(error).__name__}: {error}", location=line_of(self.function))
        diagnostic = as_failure(cause)
        key = f"{cause}"
        if key not in self._warned:
            where = self._reproducer(args, kwargs, error)
            hint = f" Reproducer: {where}" if where else ""
            self.warn_once(key, f"compiling {self.name} failed: {cause} The call runs eagerly.", diagnostic, hint)
        return self._remember_failure(diagnostic, False)

    def _reproducer(self, args: tuple, kwargs: dict, error: Exception) -> str:
        """The path of a script that fails like this; empty where none can be written, for whatever reason."""
        try:
            from lampwork.debug.reproducer import write_reproducer

            return write_reproducer(self.function, args, kwargs, self.settings, error)
        except Exception:
            log.exception("%s: no reproducer was written", self.name)
            return ""

    def _limit_reached(self, args: tuple, kwargs: dict) -> Diagnostic:
        diagnostic = _limit_of(self.settings)
        if self._dispatch is not None:
            self._dispatch.nothing_served()
        if "recompile-limit" not in self._warned:
            why = self.entries[0].why_missed(self.function, args, kwargs)
            self.warn_once(
                "recompile-limit", f"{self.name}: {diagnostic} The guard that failed last: {why}", diagnostic
            )
        return diagnostic

    def _failed_run(self, failure: Rerun, args: tuple, kwargs: dict) -> Any:
        """An entry failed before its commit point: run eagerly. Where the program failed, and eager does too, that is
        the call's own error."""
        cause = failure.__cause__
        if cause is not None and signals.raised_by_handler(cause):
            raise cause
        if failure.stage == "guards":
            if environment.strict:
                raise CompileError("guards", f"{type(cause).__name__}: {cause}") from cause
            return self._eagerly(self._compiler_failed(failure, args, kwargs), False, args, kwargs)
        if isinstance(cause, torch.OutOfMemoryError):
            _release_workspaces()  # eager may need what they hold
        with Raised() as raised:
            result = self.function(*args, **kwargs)
        if isinstance(cause, AssumptionFailed) or cause is not None and raised.has(cause):
            # No defect: the program catches what it raises where its check fails, or what an operator does.
            diagnostic = Diagnostic("assumption-failed", str(cause))
            if isinstance(cause, (SizeNotAssumed, SideNotAssumed)) and not self.settings.fullgraph:
                self._drop_assumed()
        elif environment.strict:
            raise CompileError(failure.stage, f"{type(cause).__name__}: {cause}, where eager succeeds") from cause
        else:
            diagnostic = Diagnostic("run-failed", f"the compiled program raised {type(cause).__name__}: {cause}")
        self.warn_once(diagnostic.id, f"{self.name}: {diagnostic} The call ran eagerly.", diagnostic)
        self.fell_back(diagnostic, 0.0)
        return result

    def _drop_assumed(self) -> None:
        """From now on the program breaks where contents decide a size or an unusual side, instead of running eagerly
        for some of them."""
        with self._lock:
            self._sizes_by_contents = False
            for entry in self.entries:
                steps = entry.artifact.program.steps
                if entry.artifact.program.found or any(
                    isinstance(step, Check) and step.error == "SideNotAssumed" for step in steps
                ):
                    self._remove(entry)

    def warn_once(self, key: str, text: str, diagnostic: Diagnostic, hint: str = "") -> None:
        """One warning for each `key`, which names the page that explains it. Raises it where the user's filters make
        errors of warnings, and nothing else."""
        if key in self._warned:
            return
        self._warned.add(key)
        try:
            warnings.warn(f"lampwork: {text} See {diagnostic.page}.{hint}", LampworkWarning, stacklevel=2)
        except LampworkWarning:
            raise
        except Exception as error:
            if signals.raised_by_handler(error):
                raise
            log.warning("%s", text, exc_info=True)  # whatever shows warnings in this process failed


def line_of(function: Callable) -> Location:
    """Where `function` begins in its file, if it has one."""
    owner = function
    if not isinstance(function, (FunctionType, MethodType)):
        owner = inspect.getattr_static(type(function), "forward", None)
    code = getattr(owner, "__code__", None)
    return Location(code.co_filename, code.co_firstlineno) if code is not None else Location()


_MODES_ACTIVE = Diagnostic(
    "modes-active",
    "a torch function mode, dispatch mode, function transform, level of forward derivatives or trace is active "
    "around the call",
    remedy="Call the compiled function outside of it.",
)  # fmt: skip
_UNSTABLE = Diagnostic("unstable-state", "what the program reads changed while the call was being compiled")


__all__ = ["CompiledFunction", "LampworkError", "is_compiling", "reset_all"]
