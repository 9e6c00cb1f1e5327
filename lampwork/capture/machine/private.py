"""The machine's own copy of the built-in functions.

A program may rebind `builtins.len`, and the machine that interprets it must go on working.  A module that
imports this name before it defines functions has them use the copy (`function.__builtins__`).
"""

from __future__ import annotations

import builtins

__builtins__ = dict(vars(builtins))  # type: ignore[assignment]
