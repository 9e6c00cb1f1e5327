"""The machine's own copy of the built-in functions.

A program may rebind `builtins.len`, and the machine that interprets it must go on working.
"""

from __future__ import annotations

import builtins
from typing import Any

_COPY = dict(vars(builtins))


def keep_builtins(namespace: dict[str, Any]) -> None:
    """Has the functions that a module defines from here on use the copy (`function.__builtins__`). `namespace`: its
    `globals()`."""
    namespace["__builtins__"] = _COPY


keep_builtins(globals())
