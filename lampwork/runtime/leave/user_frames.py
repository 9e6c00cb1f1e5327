"""Python frames that stand for the user's: native calls of a compiled program are made, and exceptions are traced, from
functions with the name, the file, the line and the globals of the code that was interpreted.

So tracebacks show the user's lines, and what looks at its caller (`warnings.warn`, `logging`, `inspect`) finds it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType, TracebackType

from lampwork.ir.continuation import Place


def _code(text: str) -> CodeType:
    """The code of a function written on one line: all of it is on the line that `co_firstlineno` names."""
    names: dict[str, FunctionType] = {}
    exec(text, names)
    return names["function"].__code__


_CALL = _code("def function(callable, args, kwargs): return callable(*args, **kwargs) if kwargs else callable(*args)")
_PASS_ON = _code("def function(inner, callable, args, kwargs): return inner(callable, args, kwargs)")
_RAISE = _code("def function(error): raise error")
_RAISE_FURTHER = _code("def function(inner, error): inner(error)")


def caller(places: Sequence[Place]) -> Callable[[object, tuple, dict], object]:
    """(function, args, kwargs) -> `function(*args, **kwargs)`, called from frames at `places`, outermost first."""
    return _chain(places, _CALL, _PASS_ON)


def raise_it(error: BaseException) -> None:
    raise error


def traceback_of(rest: TracebackType | None, rows: Sequence[tuple]) -> TracebackType | None:
    """A traceback that shows `rows` (the fields of a `Place` each), outermost first, then `rest`."""
    try:
        _chain([Place(*row) for row in rows], _RAISE, _RAISE_FURTHER)(_Marker())
    except _Marker as marker:
        entries = []
        assert marker.__traceback__ is not None
        entry = marker.__traceback__.tb_next
        while entry is not None:
            entries.append(entry)
            entry = entry.tb_next
        for entry in reversed(entries):
            entry.tb_next = rest
            rest = entry
    return rest


class _Marker(Exception):
    pass


def _chain(places: Sequence[Place], innermost: CodeType, outer: CodeType) -> Callable:
    chained: Callable | None = None
    for place in reversed(places):
        code = (innermost if chained is None else outer).replace(
            co_filename=place.file, co_name=place.name, co_qualname=place.qualname, co_firstlineno=place.line
        )
        module = sys.modules.get(place.module)
        names = {"__name__": place.module} if module is None else module.__dict__
        function = FunctionType(code, names)
        chained = function if chained is None else functools.partial(function, chained)
    assert chained is not None
    return chained
