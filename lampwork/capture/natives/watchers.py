"""Tracers, profilers and debuggers that the program starts. They watch frames of the interpreter's, and the program's
own must be among them: the call runs eagerly."""

from __future__ import annotations

import sys
from types import BuiltinFunctionType, FunctionType
from typing import Any

from lampwork.capture.outside.overlay import Break

#: The modules of Python's debugger, from which others derive theirs.
_DEBUGGERS = frozenset({"bdb", "pdb"})
#: The profiler in C that `cProfile` is made of, which is no part of every build.
_PROFILER = "_lsprof"
_STARTS: tuple[Any, ...] = (sys.settrace, sys.setprofile, breakpoint)
if sys.version_info >= (3, 12):
    _STARTS += (
        sys.monitoring.use_tool_id, sys.monitoring.register_callback, sys.monitoring.set_events,
        sys.monitoring.set_local_events,
    )  # fmt: skip
REMEDY = 'Start it outside, and call the function eagerly while you debug it: lampwork.set_stance("force_eager").'


def debugs(function: FunctionType) -> bool:
    """Whether a function in Python is one of a debugger's, which may be made long before it stops."""
    return function.__globals__.get("__name__") in _DEBUGGERS


def starts_watching(function: Any) -> bool:
    """Whether a function in C starts, or changes, what is told of frames."""
    if type(function) is BuiltinFunctionType and function.__name__ == "enable":
        return any(cls.__module__ == _PROFILER for cls in type(function.__self__).__mro__)
    return any(function is each for each in _STARTS)


def refuse_watching(world: Any, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A break after which nothing goes on: what stands for the program's frames there has none of its lines."""
    module = f"{function.__module__}." if function.__module__ not in (None, "builtins") else ""
    raise Break("watched", f"{module}{function.__qualname__}, which watches frames, is called", REMEDY)
