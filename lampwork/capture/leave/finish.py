"""Finishing suspended frames natively: the machine runs them on real values, whatever they call runs in CPython."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from torch.autograd.profiler import record_function

from lampwork.capture.leave.suspend import rebuild
from lampwork.capture.machine import Machine, Natives, World
from lampwork.capture.machine.core import Handled
from lampwork.ir.continuation import Resumption


class NativeWorld(World):
    """Python's own semantics, with functions left to CPython: frames inside are the suspended ones alone."""

    def __init__(self) -> None:
        super().__init__(_NATIVES)

    def should_interpret(self, function: FunctionType) -> bool:
        return False


def _leave_label(world: Any, label: Any, *error: Any) -> Any:
    return record_function.__exit__(label, *error) if label.record is not None else None


#: A profiler's label that capture passed over when it was entered is passed over when it is left.
_NATIVES = Natives({record_function.__exit__: _leave_label})


def finish(resumption: Resumption, values: tuple) -> Any:
    """What the frames return, or raise, given what was delivered and their live values. Every step runs once."""
    machine = Machine(NativeWorld())
    frames, handling = rebuild(resumption, values, values)
    for frame in frames:
        for slot, value in zip(frame.kept[::2], frame.kept[1::2]):
            frame.locals[slot] = value
    machine.frames.extend(frames)
    handled = Handled()
    handled.value = handling
    return machine.run(0, values[0] if resumption.raised else None, handled, fresh=False)
