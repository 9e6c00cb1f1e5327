"""Finishing suspended frames natively: the machine runs them on real values, whatever they call runs in CPython.

It is called from frames that stand for the suspended ones, each on its line: what looks at its caller finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from torch.autograd.profiler import record_function

from lampwork.capture.leave.suspend import place_of, rebuild
from lampwork.capture.machine import UNBOUND, Enter, Machine, Natives, World
from lampwork.capture.machine.core import Handled
from lampwork.ir.continuation import Place, Resumption


class NativeWorld(World):
    """Python's own semantics, with functions left to CPython: frames inside are the suspended ones alone."""

    def __init__(self) -> None:
        super().__init__(_NATIVES)

    def should_interpret(self, function: FunctionType) -> bool:
        return False

    def call_native(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return self.machine.call_from_frames(function, args, kwargs)


class NativeMachine(Machine):
    """`caller`: as `runtime/leave/user_frames.py` has it."""

    def __init__(self, caller: Callable[[Sequence[Place]], Callable]) -> None:
        super().__init__(NativeWorld())
        self._caller = caller
        self._callers: dict[tuple[Place, ...], Callable] = {}

    def enter(self, request: Enter) -> Any:
        value = self.call_from_frames(request.function, request.args, request.kwargs or {})
        return value if request.constructed is UNBOUND else self.constructed(request.constructed, value)

    def call_from_frames(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        places = tuple([place_of(frame, False) for frame in self.frames])
        call = self._callers.get(places)
        if call is None:
            call = self._callers[places] = self._caller(places)
        try:
            return call(function, args, kwargs)
        except BaseException as error:
            traceback = error.__traceback__
            for _ in range(1 + len(places)):  # the frames' own lines come with the frames
                traceback = traceback and traceback.tb_next
            error.__traceback__ = traceback
            raise


def _leave_label(world: Any, label: Any, *error: Any) -> Any:
    return record_function.__exit__(label, *error) if label.record is not None else None


#: A profiler's label that capture passed over when it was entered is passed over when it is left.
_NATIVES = Natives({record_function.__exit__: _leave_label})


def finish(resumption: Resumption, values: tuple, caller: Callable[[Sequence[Place]], Callable]) -> Any:
    """What the frames return, or raise, given what was delivered and their live values. Every step runs once."""
    machine = NativeMachine(caller)
    frames, handling = rebuild(resumption, values, values)
    for frame in frames:
        for slot, value in zip(frame.kept[::2], frame.kept[1::2]):
            frame.locals[slot] = value
    machine.frames.extend(frames)
    handled = Handled()
    handled.value = handling
    return machine.run(0, values[0] if resumption.raised else None, handled, fresh=False)
