"""Mode "auto": calls run eagerly from the first on, while they are compiled beside them; then what is faster stays.

    no entry for the call    it runs eagerly, and is compiled in the background
    an entry                 eager and compiled calls take turns (`trial.py`), each call made once
    decided                  the faster of the two; what nothing compiled is chosen for runs eagerly without a look at
                             guards, for some calls at a time

Every class of calls, which is what an entry's guards tell apart, has a trial of its own. A trial is held again after
many calls, later each time, and where a compiled call has become much slower than it was.
"""

from __future__ import annotations

import dataclasses
import importlib
import threading
from collections.abc import Callable
from typing import Any, Protocol

import torch

from lampwork import _torch, collector, turns
from lampwork.backends import BACKENDS
from lampwork.config import Settings
from lampwork.ir.record import record
from lampwork.runtime import stances
from lampwork.runtime.auto.background import Background
from lampwork.runtime.auto.clock import Clock
from lampwork.runtime.auto.trial import EAGER, Trial
from lampwork.runtime.entry import MISS, Entry
from lampwork.runtime.function import CompiledFunction, is_compiling
from lampwork.runtime.launch.host import Rerun
from lampwork.runtime.observer import Observer

#: Calls after which a trial is held again: at first, and at most. Each time it is twice as many, and no fewer than so
#: many that the last trial was no more than this share of their time: slow ways are tried in it, too.
AGAIN, AGAIN_AT_MOST, SHARE_OF_TIME = 2000, 256_000, 0.005
#: Calls that run eagerly before guards are looked at again, where nothing compiled is faster: at first, and at most.
UNLOOKED, UNLOOKED_AT_MOST = 32, 4096
#: Every so many compiled calls one is timed; where so many in a row took so much longer than in the trial, it is held
#: again.
TIMED_EVERY, SLOW_ONES, SLOWER = 64, 3, 1.5
#: Calls without one of a class after which its trial holds nothing up.
IDLE = 1000
#: Entries that are dropped for having served no call, at most.
DROPPED_AT_MOST = 32
#: Calls that are compiled before a trial begins: what follows breaks is compiled in them, graphs are captured.
WARM_UP = 4

#: What a compile loads first, and then bit by bit.
COMPILER = (
    "lampwork.pipeline", "lampwork.capture.record.scalars", "lampwork.codegen.llvm.compile",
    "lampwork.codegen.llvm.module", "lampwork.runtime.launch.cpu", "lampwork.runtime.cache.entries",
    "lampwork.runtime.guards.recompiles", "lampwork.runtime.guards.varying", "lampwork.runtime.leave.continuation",
)  # fmt: skip
COMPILER_FOR_GPUS = ("lampwork.codegen.triton.generate", "lampwork.codegen.triton.compile")

WAYS_ON_GPU = ("reduce-overhead",)
DEFAULT = "default"


@record
class Choice:
    """What was found for one class of calls: `way` is "eager" or a mode, None while it is tried. Times are of a typical
    call, seconds, by way."""

    way: str | None
    seconds: tuple[tuple[str, float], ...]
    trials: int


class _Class:
    """The calls that one entry serves. `serves`: what serves them by each way, as far as it is compiled."""

    def __init__(self, entry: Entry, ways: tuple[str, ...]) -> None:
        self.ways = ways
        self.serves = {DEFAULT: entry.serve}
        self.trial = Trial(ways)
        self.trials = 1
        self.warm = 0
        self.again = self.left = AGAIN
        self.concluded: Trial | None = None
        #: What serves it where something compiled was chosen, and the calls until one is timed.
        self.serve = entry.serve
        self.untimed = 0
        self.slow = 0
        #: How many calls the function had when one of this class was last looked at.
        self.last = 0

    def try_again(self) -> None:
        self.trial, self.warm, self.slow = Trial(self.ways), 0, 0
        self.trials += 1
        self.again = min(2 * self.again, AGAIN_AT_MOST)

    def conclude(self) -> str:
        """The decision, from which on calls are counted to the next trial."""
        trial, decision = self.trial, self.trial.decision
        assert decision is not None
        if self.concluded is not trial:
            self.concluded = trial
            calls = trial.spent / (SHARE_OF_TIME * max(trial.seconds[decision], 1e-9))
            self.left = max(self.again, round(calls))
        return decision

    @property
    def choice(self) -> Choice:
        return Choice(self.trial.decision, tuple(self.trial.seconds.items()), self.trials)


class AutoFunction(CompiledFunction):
    """A compiled function whose calls never wait for a compile. It is itself the way "default"; the others are compiled
    functions beside it."""

    def __init__(
        self,
        function: Callable,
        settings: Settings,
        make_entry: Callable[..., Entry] | None = None,
        observer: Observer | None = None,
    ) -> None:
        super().__init__(function, dataclasses.replace(settings, mode=DEFAULT), make_entry, observer)
        self.background = self._jobs = Background()
        self._beside: dict[str, CompiledFunction] = {}
        self._start_again()
        self._load_compiler()

    def _load_compiler(self) -> None:
        """Now, and not beside calls: an import does not give way to them.

        Where something is stored for the function, it is thought to serve; the compiler is loaded if it does not.
        """
        if self._make_entry is not None:
            return
        if self.stored.uses_cache:
            from lampwork.runtime.cache import entries

            if entries.is_anything_stored(self.function, self.settings):
                return
        with collector.paused():
            for stage in (*COMPILER, *(COMPILER_FOR_GPUS if torch.cuda.is_initialized() else ())):
                importlib.import_module(stage)

    def _start_again(self) -> None:
        self._classes: dict[Callable, _Class] = {}
        #: The classes for which something compiled was chosen.
        self._decided: tuple[_Class, ...] = ()
        self._clock: Clock | None = None
        #: Calls that are not looked at: all calls, or those that no class of `_decided` takes.
        self._unlooked = self._others_unlooked = 0
        self._unlooked_next = UNLOOKED
        self._dropped = 0
        self._busy = threading.Lock()

    def reset(self) -> None:
        super().reset()
        self.background = self._jobs = Background()
        for each in self._beside.values():
            each.reset()
        self._beside = {}
        self._start_again()

    @property
    def choices(self) -> tuple[Choice, ...]:
        return tuple(each.choice for each in self._classes.values())

    # A call --------------------------------------------------------------------------------------------------------

    def call(self, args: tuple, kwargs: dict) -> Any:
        """The result of one call, made once, by what is known to be the fastest way or is being tried."""
        if self._unlooked > 0:
            self._unlooked -= 1
            self.counters.calls += 1
            return self.function(*args, **kwargs)
        if stances.is_eager():
            self.counters.calls += 1
            return self._eagerly(stances.not_compiled("force_eager"), False, args, kwargs)
        failure = None
        try:
            for found in self._decided:
                if found.untimed > 0:
                    result = found.serve(self.function, args, kwargs)
                else:
                    result = self._watched(found, args, kwargs)
                if result is not MISS:
                    found.untimed -= 1
                    self.counters.calls += 1
                    return result
        except Rerun as stop:
            failure = stop
        if failure is not None:
            return self._failed_run(failure, args, kwargs)
        if self._others_unlooked > 0:
            self._others_unlooked -= 1
            self.counters.calls += 1
            return self.function(*args, **kwargs)
        self._jobs.raise_error()
        if is_compiling() or _torch.active_modes() or not self._busy.acquire(blocking=False):
            self.counters.calls += 1  # another thread, or a call of this function within one, is being tried
            return self.function(*args, **kwargs)
        try:
            way, timed, then = self._way(args, kwargs)
            if timed is not None:  # times are of one call at a time
                return self._run(way, timed, then, args, kwargs)
        finally:
            self._busy.release()
        return self._run(way, None, then, args, kwargs)

    def _watched(self, found: _Class, args: tuple, kwargs: dict) -> Any:
        """The result of one call of the chosen way, timed to see whether it still is what it was; `MISS` where it does
        not serve the call, or its trial is to be held again."""
        decision, clock = found.trial.decision, self._clock
        if found.left <= 0 or decision is None or clock is None:
            self._others_unlooked = 0
            return MISS
        if not self._busy.acquire(blocking=False):
            return found.serve(self.function, args, kwargs)
        try:
            clock.start()
            result = found.serve(self.function, args, kwargs)
            if result is not MISS:
                ends = clock.until_next if _takes_gradients(result) else clock.stop
                ends(_Watched(found, decision).took)
                found.untimed = TIMED_EVERY
                found.left -= TIMED_EVERY
        finally:
            self._busy.release()
        return result

    def _run(self, way: str, timed: Timed | None, then: Callable[[], None] | None, args: tuple, kwargs: dict) -> Any:
        clock = self._clock
        if timed is not None and clock is not None:
            clock.start()
        turns.begin()
        try:
            if way == EAGER:
                self.counters.calls += 1
                result = self.function(*args, **kwargs)
            elif way == DEFAULT:
                result = super().call(args, kwargs)
            else:
                self.counters.calls += 1
                result = self._beside[way].call(args, kwargs)
        except BaseException:
            if timed is not None:
                timed.took(None)
            raise
        finally:
            turns.end()
        if timed is not None and clock is not None:
            ends = clock.until_next if _takes_gradients(result) else clock.stop
            ends(timed.took)
        if then is not None:
            then()
        return result

    def _way(self, args: tuple, kwargs: dict) -> tuple[str, Timed | None, Callable[[], None] | None]:
        """How to run this call, who is told of its time, and what is to be done after it."""
        if self._clock is None:
            self._begin(args, kwargs)
        assert self._clock is not None
        self._clock.settle()
        entry = self._held(args, kwargs)
        if entry is None and not self._jobs.can_wait(args, kwargs):
            return DEFAULT, None, None  # compiled first: an iterator has nothing left after the call
        if entry is None:
            self._drop_what_does_not_serve()
            then = self._jobs.asked(self, args, kwargs)
            if then is None and not self._jobs.pending:
                self._leave_eager()
            return EAGER, None, then
        found = self._classes.get(entry.serve)
        if found is None:
            self._forget_removed()
            found = self._classes[entry.serve] = _Class(entry, (DEFAULT, *self._beside))
        found.last = self.counters.calls
        if found.trial.decision is None:
            return self._tried(found, args, kwargs)
        return *self._chosen(found), None

    def _begin(self, args: tuple, kwargs: dict) -> None:
        on_gpu = _on_gpu(self.function, args, kwargs)
        self._clock = Clock(on_gpu)
        for mode in WAYS_ON_GPU if on_gpu else ():
            settings = dataclasses.replace(self.settings, mode=mode)
            beside = self._beside[mode] = CompiledFunction(self.function, settings, self._make_entry, self.observer)
            beside.background = self._jobs

    def _held(self, args: tuple, kwargs: dict) -> Entry | None:
        try:
            return next((entry for entry in self.entries if entry.holds(self.function, args, kwargs)), None)
        except Rerun:
            return None

    def _tried(self, found: _Class, args: tuple, kwargs: dict) -> tuple[str, Timed | None, Callable[[], None] | None]:
        self._forget_decisions()
        if self._jobs.pending:
            return EAGER, None, None
        for way, each in self._beside.items():
            held = next((entry for entry in each.entries if entry.holds(self.function, args, kwargs)), None)
            if held is None:
                then = self._jobs.asked(each, args, kwargs)
                if then is not None:
                    return EAGER, None, then
            else:
                found.serves[way] = held.serve
        ways = tuple(found.serves)
        if ways != found.ways:
            found.ways, found.trial = ways, Trial(ways)
        if found.warm < WARM_UP * len(ways):
            found.warm += 1
            return ways[found.warm % len(ways)], None, None
        call = found.trial.next()
        return call.way, call, None

    def _chosen(self, found: _Class) -> tuple[str, Timed | None]:
        decision = found.conclude()
        if found.left <= 0:
            found.try_again()
            return EAGER, None
        found.left -= 1
        if decision == EAGER:
            self._leave_eager()
            return EAGER, None
        found.serve, found.untimed = found.serves[decision], TIMED_EVERY
        self._decided = tuple(each for each in self._classes.values() if each.trial.decision not in (None, EAGER))
        self._unlooked_next = UNLOOKED
        return decision, None

    def _forget_removed(self) -> None:
        """Classes whose entries others have replaced, as where sizes turned out to vary."""
        serves = set(self.serves)
        self._classes = {serve: each for serve, each in self._classes.items() if serve in serves}
        self._decided = tuple(each for each in self._decided if each.serves[DEFAULT] in serves)

    def _forget_decisions(self) -> None:
        self._decided = tuple(each for each in self._decided if each.trial.decision is not None)

    def _drop_what_does_not_serve(self) -> None:
        """Entries that have served no call were made while the program changed what it reads: a compile that gives way
        sees many states, and no call finds all of them. The next ones are captured in one piece. Where there is no
        room for one, these make it, and those that serve no more, as for a single number."""
        never = [entry for entry in self.entries if entry.serve not in self._classes]
        if self._jobs.pending:
            return
        self._jobs.in_one_piece |= bool(never)
        if len(self.serves) < self.settings.options.recompile_limit or self._dropped >= DROPPED_AT_MOST:
            return
        now = self.counters.calls
        idle = {
            serve for serve, each in self._classes.items() if each.trial.decision is None and now - each.last > IDLE
        }
        never += [entry for entry in self.entries if entry.serve in idle]
        if never:
            self._dropped += len(never)
            with self._lock:
                for entry in never:
                    self._remove(entry)
            self._forget_removed()
            self._jobs.again(self)

    def _leave_eager(self) -> None:
        """Nothing compiled is faster for such calls: the next of them are not looked at, unless a trial is held.

        A class that comes no more, as one for a single number, holds none."""
        now = self.counters.calls
        if any(each.trial.decision is None and now - each.last < IDLE for each in self._classes.values()):
            return
        calls = self._unlooked_next
        self._unlooked_next = min(2 * calls, UNLOOKED_AT_MOST)
        if self._decided:
            self._others_unlooked = calls
        else:
            self._unlooked = calls
        for each in self._classes.values():
            if each.trial.decision == EAGER:
                each.left -= calls


class Timed(Protocol):
    """Is told what a call took, in seconds; None where it raised."""

    def took(self, seconds: float | None) -> None: ...


class _Watched:
    """A call of a way that was chosen, timed to see whether it still is what it was."""

    def __init__(self, found: _Class, way: str) -> None:
        self._found, self._way = found, way

    def took(self, seconds: float | None) -> None:
        found = self._found
        if seconds is None or found.trial.decision != self._way:
            return
        found.slow = found.slow + 1 if seconds > SLOWER * found.trial.seconds[self._way] else 0
        if found.slow >= SLOW_ONES:
            found.try_again()


def _on_gpu(function: Callable, args: tuple, kwargs: dict) -> bool:
    from lampwork.runtime.devices import devices

    return any(not BACKENDS[each.type].is_host for each in devices(function, args, kwargs) if each.type in BACKENDS)


def _takes_gradients(result: Any) -> bool:
    """Whether what the caller does next is likely to be a backward pass."""
    if isinstance(result, torch.Tensor):
        return result.requires_grad
    if isinstance(result, dict):
        result = tuple(result.values())
    return isinstance(result, tuple | list) and any(
        isinstance(each, torch.Tensor) and each.requires_grad for each in result
    )
