"""Calls that go on after a graph break: a native call, then the suspended frames, compiled as entries of their own.

    entry of the call:   guards, graph, effects  -> Suspended(point, callable, args, kwargs, live values)
    `drive`:             callable(*args, **kwargs), natively
    continuation:        guards on the live values, graph, effects -> a result, or the next Suspended

A `Continuation` is a compiled function whose arguments are live values. All continuations of a compiled function are
kept by it, by `Resumption`, so that paths which meet share them. Where one cannot be compiled, its frames are finished
natively: the same code goes on in the interpreter's own semantics, from the same place.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from typing import Any

from lampwork import forks
from lampwork.errors import Diagnostic
from lampwork.ir.continuation import Resumption, SuspendedFrames
from lampwork.ir.operations import EXHAUSTED
from lampwork.ir.region import Continue
from lampwork.runtime.function import CompiledFunction
from lampwork.runtime.leave.user_frames import caller
from lampwork.runtime.stats import noted


class Suspended:
    """A call in the middle of a break: what runs natively next, and the live values of its frames."""

    __slots__ = ("point", "callable", "args", "kwargs", "live")

    def __init__(self, point: BreakPoint, callable: Callable, args: tuple, kwargs: dict, live: tuple) -> None:
        self.point = point
        self.callable = callable
        self.args = args
        self.kwargs = kwargs
        self.live = live


class BreakPoint:
    """One break of one entry: where it goes on, however the native call ends."""

    def __init__(self, root: CompiledFunction, outcome: Continue) -> None:
        self.root = root
        reason = outcome.reason
        self.diagnostic = Diagnostic(reason.id, reason.reason, reason.location, reason.remedy)
        self.delivery = outcome.delivery
        self.handled = outcome.after.handled
        self.call = caller(outcome.places)
        self._after = outcome.after
        self._otherwise = outcome.otherwise
        self.raised = outcome.raised
        self._continuations: dict[int, CompiledFunction] = {}
        if outcome.raised is not None:
            self._kept = outcome.raised.values
            # What an exception's traceback begins with: our own frame, and those of frames outside the handler's.
            self._outer_lines = len(outcome.raised.frames)

    def suspend(self, callable: Callable, args: tuple, kwargs: dict, live: tuple) -> Suspended:
        return Suspended(self, callable, args, kwargs, live)

    def go_on(self, result: Any, live: tuple) -> Any:
        """What follows a native call that returned: a result, or the next `Suspended`."""
        delivery = self.delivery
        resumption: Resumption | None = self._after
        delivered: tuple = ()
        if delivery == "push":
            delivered = (result,)
        elif delivery == "spread":
            delivered = result
        elif delivery != "drop":
            if result is EXHAUSTED:
                resumption = self._otherwise
            elif delivery == "iterate":
                delivered = (result,)
        assert resumption is not None
        return self._go_on_at(resumption, (*delivered, *live))

    def _go_on_at(self, resumption: Resumption, values: tuple) -> Any:
        """What the frames return from there on, natively where nothing can be made to serve them."""
        failure = None
        try:
            continuation = self._at(resumption)
        except Exception as error:
            failure = error
        if failure is None:
            return continuation.call(values, {})
        return self.root.continued_natively(SuspendedFrames(self.root.function, resumption, _finish), values, failure)

    def _at(self, resumption: Resumption) -> CompiledFunction:
        known = self._continuations.get(id(resumption))  # finding it by what it is takes 10 microseconds
        if known is None:
            known = self._continuations[id(resumption)] = self.root.continuation(resumption)
        return known

    def go_on_raising(self, error: BaseException, live: tuple) -> Any:
        """What follows a native call that raised `error`, which a live frame handles."""
        assert self.raised is not None
        traceback = error.__traceback__
        for _ in range(self._outer_lines):
            if traceback is not None:
                traceback = traceback.tb_next
        error.__traceback__ = traceback
        handled = live[-1:] if self.handled else ()
        return self._go_on_at(self.raised, (error, *live[: self._kept], *handled))


def drive(serve: Callable, function: object, args: tuple, kwargs: dict) -> Any:
    """Runs a call to its end, if `serve` suspends it. Not recursive: a loop may break a million times.

    What is suspended is nobody's but this function's: a caller that handed it over would hold it, and with it what the
    program lets go of, until all has run (CPython moves an argument into the callee's frame only where nobody else
    evaluates frames, PEP 523, as `torch.compile` does).
    """
    suspended = serve(function, args, kwargs)
    while type(suspended) is Suspended:
        point, live = suspended.point, suspended.live
        start = time.perf_counter()
        error: BaseException | None = None
        try:
            if point.handled:
                result = _call_while_handling(live[-1], point.call, suspended)
            else:
                result = point.call(suspended.callable, suspended.args, suspended.kwargs)
        except BaseException as raised:
            if point.raised is None:
                raise
            error = raised
        finally:
            noted(point.root.counters.broke, point.diagnostic, time.perf_counter() - start)
        suspended = None  # the program may wait for what it holds to die
        suspended = point.go_on(result, live) if error is None else point.go_on_raising(error, live)
        result = live = ()
    return suspended


def _call_while_handling(handled: BaseException, call: Callable, suspended: Suspended) -> Any:
    """Makes the call as from an `except` clause that is handling `handled`."""
    traceback, context = handled.__traceback__, handled.__context__
    try:
        raise handled
    except BaseException:
        handled.__traceback__, handled.__context__ = traceback, context
        return call(suspended.callable, suspended.args, suspended.kwargs)


def _finish(resumption: Resumption, values: tuple) -> Any:
    with forks.compiling():
        finish = importlib.import_module("lampwork.capture.leave.finish").finish
    return finish(resumption, values, caller)


class Continuation(CompiledFunction):
    """What is compiled for suspended frames. Its calls return results, or `Suspended` where they break again."""

    def __init__(self, root: CompiledFunction, resumption: Resumption) -> None:
        frames = SuspendedFrames(root.function, resumption, _finish)
        super().__init__(frames, root.settings, root._make_entry, root.observer)
        self.root = root
        self.background = root.background

    drives = False
