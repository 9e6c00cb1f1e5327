"""Where and why a capture stopped, in a user's words: diagnostics of breaks and errors."""

from __future__ import annotations

import inspect
import traceback
import types
from typing import Any

import torch

from lampwork.capture.machine import Interruption
from lampwork.capture.machine.errors import Unsupported
from lampwork.capture.outside.overlay import Break
from lampwork.errors import Diagnostic, GraphBreak
from lampwork.ir.guard import Guard
from lampwork.ir.loops import Location

_TORCH_DIRECTORY = torch.__file__.rpartition("/")[0] + "/"
_OWN_DIRECTORY = __file__.rpartition("/")[0] + "/"


def makes_its_text(error: BaseException) -> bool:
    """Whether the class of an error has a method in Python for its text, which the program alone calls."""
    return any(type(each) is types.FunctionType for each in (type(error).__str__, type(error).__repr__))


def described(error: BaseException) -> str:
    """Class and text of an error of the program; the class alone where the program's own code makes the text."""
    if makes_its_text(error):
        return type(error).__name__
    try:
        return f"{type(error).__name__}: {error}"
    except Break:  # its text depends on what tensors hold
        return type(error).__name__


def diagnostic_of(stop: Interruption, function: Any) -> Diagnostic:
    """Why the machine stopped, with the line of the program. `function`: what was captured."""
    location = _break_location(stop)
    if not location.file and stop.__cause__ is not None:
        location = _raised_at(stop.__cause__)
    if not location.file:  # a result or an effect that no template describes
        location = location_of(function)
    if isinstance(stop, Break):
        return Diagnostic(stop.id, stop.reason, location, stop.remedy)
    return Diagnostic("unsupported", stop.reason if isinstance(stop, Unsupported) else str(stop), location)


def graph_break(world: Any, stop: Interruption, function: Any, reason: Diagnostic | None) -> GraphBreak:
    """The error that says the region cannot be had, with the guards on what was read by then.

    `stop` loses its traceback: frames in it hold `stop` itself, and all of them what the program was called with, which
    would stay alive until garbage is collected."""
    problem = GraphBreak(reason or diagnostic_of(stop, function), guards_so_far(world))
    problem.__cause__ = stop.__cause__
    problem.symbolic = bool(world.recorder.sizes)
    problem.optimizers = frozenset(world.stepped)
    stop.__traceback__ = None
    return problem


def guards_so_far(world: Any) -> tuple[Guard, ...]:
    """Guards on all that was read until now."""
    world.backed_numbers.guard_equal()
    return (*world.guards.finish(set()), *world.recorder.sizes.guards())


def _break_location(stop: Interruption) -> Location:
    """The innermost line that is not torch's own."""
    frames = [frame for frame in stop.frames or () if not frame.code.hidden]
    for frame in reversed(frames):
        if not frame.filename.startswith(_TORCH_DIRECTORY):
            return Location(frame.filename, frame.line)
    return Location(frames[-1].filename, frames[-1].line) if frames else Location()


def _raised_at(error: BaseException) -> Location:
    """Where the program raised an exception that nothing in it caught."""
    places = traceback.extract_tb(error.__traceback__)
    inner = [place for place in places if not place.filename.startswith((_TORCH_DIRECTORY, _OWN_DIRECTORY))]
    return Location(inner[-1].filename, inner[-1].lineno or 0) if inner else Location()


def location_of(function: Any) -> Location:
    """Where the program begins."""
    if isinstance(function, types.MethodType):
        function = function.__func__
    if isinstance(function, torch.nn.Module):
        function = inspect.getattr_static(type(function), "forward", None)  # that of scripted modules fails
    code = getattr(function, "__code__", None)
    return Location(code.co_filename, code.co_firstlineno) if code is not None else Location()
