"""Whether a program catches an error: what is raised within a call is noted, whoever handles it."""

from __future__ import annotations

import sys
from types import FrameType, TracebackType
from typing import Any


class Raised:
    """A context in which it is noted what functions that begin in this thread raise, or let through.

    Nothing is noted where a debugger or a coverage tool traces the thread.
    """

    def __init__(self) -> None:
        self._types: set[type[BaseException]] = set()
        self._traces = False

    def __enter__(self) -> Raised:
        self._traces = sys.gettrace() is None
        if self._traces:
            sys.settrace(self._begin)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._traces and sys.gettrace() == self._begin:  # a debugger that the program has started stays
            sys.settrace(None)

    def has(self, error: BaseException) -> bool:
        """Whether an error of the same class was raised."""
        return type(error) in self._types

    def _begin(self, frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_lines = False
        return self._note

    def _note(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "exception":
            self._types.add(argument[0])
        return self._note
