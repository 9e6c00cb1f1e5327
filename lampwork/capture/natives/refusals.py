"""Errors of native code that was given what only stands for a number or a tensor while a program is captured.

Native code asks what it is given for its type and its memory, and a stand-in has neither: `deque(log, maxlen=k)`
refuses a symbol, `struct.pack("<f", x)` a tensor without contents. Such an error is not the program's, whose own
`except` would take it for that. So the call is made once more with numbers, each with its guard; where a tensor is
among the arguments, the graph breaks and the call is made natively.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from lampwork.capture.natives.effect_classes import name_of
from lampwork.capture.outside.overlay import Break
from lampwork.capture.record.fake import TENSOR_KINDS
from lampwork.capture.values.sizes import SYMBOLIC, number, settled
from lampwork.capture.values.walk import holds

#: What is asked about elements and numbers themselves, and answered for a symbol as for its number.
_ANSWERS = (LookupError, StopIteration, ArithmeticError)
#: Frames of functions that a program may have handed to native code lie there.
_MACHINE = "/capture/machine/"


def with_numbers(function: Any, args: tuple, kwargs: dict[str, Any], error: Exception) -> tuple[tuple, dict[str, Any]]:
    """The arguments with which to call `function` again, where it raised `error` for symbols among them. Raises `Break`
    for a tensor among them, and for an iterator, whose elements are gone; and `error` where there are none, or where
    the program's own code raised it."""
    is_own = type(error).__module__.partition(".")[0] == "lampwork"
    if is_own or isinstance(error, _ANSWERS) or _passes_through_program(error.__traceback__):
        raise error
    values = (*args, *kwargs.values())
    if holds(values, TENSOR_KINDS):
        raise Break("native-argument", f"{name_of(function)} is called with a tensor, and refuses what stands for it")
    if any(hasattr(type(each), "__next__") for each in values):
        raise Break("native-argument", f"{name_of(function)} refuses an iterator, and may have begun it")
    if not holds(values, SYMBOLIC):
        raise error
    # Lists, dicts and sets are what native code may write to: symbols stay in them.
    known = lambda value: number(value) if type(value) in (*SYMBOLIC, slice) else value
    numbers = tuple(known(each) if isinstance(each, (list, dict, set)) else settled(each) for each in args)
    return numbers, {name: known(each) for name, each in kwargs.items()}


def _passes_through_program(traceback: TracebackType | None) -> bool:
    while traceback is not None:
        if _MACHINE in traceback.tb_frame.f_code.co_filename:
            return True
        traceback = traceback.tb_next
    return False
