"""Warnings of PyTorch's own functions while a program is captured. They are held, and shown once an entry serves the
call: a capture that is given up, or begun again, warns of nothing, and where eager makes the call, eager warns."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lampwork.ir.location import Location

_SYMBOL = re.compile(r"\b[a-z]\d+\b")


class LibraryWarnings:
    """`location`: the line of the program that runs."""

    def __init__(self, location: Callable[[], Location]) -> None:
        self.location = location
        self.held: list[tuple[str, type[Warning], str, int]] = []

    def hold(self, function: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> Any:
        """What `function` returns, a function written in Python. Filters of warnings count, and are not changed."""
        before, thread = warnings.showwarning, threading.get_ident()

        def held(message: Any, category: Any, filename: str, lineno: int, *rest: Any, **named: Any) -> None:
            if threading.get_ident() != thread:
                before(message, category, filename, lineno, *rest, **named)
                return
            if filename == __file__:  # the caller's line
                location = self.location()
                filename, lineno = location.file or filename, location.line or lineno
            self.held.append((str(message), category, filename, lineno))

        warnings.showwarning = held
        try:
            return function(*args, **kwargs)
        finally:
            if warnings.showwarning is held:
                warnings.showwarning = before


def show(held: Sequence[tuple[str, type[Warning], str, int]], sizes: Mapping[str, int]) -> None:
    """Shows what was held: (text, class, file, line). `sizes`: of the call, by the names that symbols have in texts."""
    for text, category, filename, lineno in held:
        told = _SYMBOL.sub(lambda found: str(sizes.get(found[0], found[0])), text)
        warnings.showwarning(category(told), category, filename, lineno)
