"""Where something came from: lines of the program, operators of the graph. Imported everywhere, imports nothing."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from lampwork.ir.record import record


@record
class Location:
    """Where in the user's program: file, line, module path such as `encoder.layer.0.attention`."""

    file: str = ""
    line: int = 0
    module: str = ""


def name_of(function: Any) -> str:
    """What reports call a callable. What has no name is not asked for it: its `__getattr__` may be the program's."""
    if isinstance(function, functools.partial):
        function = function.func
    has_one = inspect.getattr_static(function, "__qualname__", None) is not None
    return has_one and getattr(function, "__qualname__", None) or type(function).__qualname__


@record
class Origin:
    """Which operator of which graph node this came from, for diagnostics and counts."""

    node: str
    op: str
    location: Location = Location()
