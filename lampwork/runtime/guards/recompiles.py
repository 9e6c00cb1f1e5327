"""Why a call is compiled again although entries exist: the guard that failed, in words, and what its owner can do.

Loaded on a recompile only.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any

from lampwork.errors import Diagnostic
from lampwork.ir.guard import Guard
from lampwork.ir.location import Location
from lampwork.runtime.guards.failures import first_failure
from lampwork.runtime.guards.rules import rule_of


def recompile(guards: Sequence[Guard], function: Callable, args: tuple, kwargs: dict) -> Diagnostic:
    """The diagnostic of a call that an entry with `guards` does not serve.

    Its location is the line that read the value; that of the function where no line did (an argument's type and sizes).
    """
    failed = first_failure(guards, function, args, kwargs)
    if failed is None:  # it changed back meanwhile
        return Diagnostic("recompile", "what the program reads was changing while the call came in")
    guard, reason = failed
    location = guard.location if guard.location.file else definition(function)
    return Diagnostic(
        "recompile", with_names(reason, function), location, rule_of(guard.test).remedy(guard.test, guard.source)
    )


def with_names(text: str, function: Callable) -> str:
    """`text` with "argument 0" as the name of the parameter that takes it, where `function` tells."""
    names = parameter_names(function)

    def name(match: re.Match) -> str:
        index = int(match[1])
        return names[index] if index < len(names) else match[0]

    return re.sub(r"\bargument (\d+)\b", name, re.sub(r"\bargument '(\w+)'", r"\1", text))


def parameter_names(function: Callable) -> tuple[str, ...]:
    """The parameters that the positional arguments of a call of `function` go to; as many as are known by name."""
    target = _python_function(function)
    code = getattr(getattr(target, "__func__", target), "__code__", None)
    if code is None:
        return ()
    return code.co_varnames[int(isinstance(target, MethodType)) : code.co_argcount]


def definition(function: Callable) -> Location:
    """Where the code of `function` begins; a module's is its `forward`."""
    target = _python_function(function)
    code = getattr(getattr(target, "__func__", target), "__code__", None)
    return Location() if code is None else Location(code.co_filename, code.co_firstlineno)


def _python_function(function: Callable) -> Any:
    if inspect.isroutine(function):
        return function
    forward = getattr(function, "forward", None)
    return MethodType(type(function).__call__, function) if forward is None else forward
