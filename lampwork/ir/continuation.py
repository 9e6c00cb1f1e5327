"""Suspended frames as data: what a program is in the middle of when a graph breaks, and how it goes on.

A break divides a call into a region, one operation that runs natively, and a continuation: the frames that were live,
which are captured again as a region of their own. `Resumption` says where they stand and which values they hold, not
what the values are; two paths that reach the same resumption share everything compiled for it.

The values travel as one flat tuple: what the operation delivered, then for each frame, outermost first, its function,
the instance being constructed, its bound slots, its stack and what it keeps, and last the exception that is being
handled. Variables that nothing reads again are no part of a layout, so that paths which differ in them meet; but they
live on, as they do in eager, in what the frame keeps: a tuple (slot, value, slot, value, ...).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lampwork.ir.location import Location
from lampwork.ir.record import record


@record
class FrameLayout:
    """One suspended frame.

    `code`: the code object; `index`: the decoded instruction it goes on with. `slots`: the bound local slots (cells
    among them hold the cells). `stack`: "value", "null" or "unbound" for each entry. `constructed`: the frame is an
    `__init__` whose instance is delivered in place of its result.
    """

    code: Any
    index: int
    slots: tuple[int, ...]
    stack: tuple[str, ...]
    constructed: bool = False


@record
class Resumption:
    """Where suspended frames go on.

    `delivered`: how many values the operation hands over, pushed on the innermost stack in order. `raised`: the
    operation raised; its exception comes in place of those, and is raised in the innermost of these frames, which
    handles it. `dropped`: entries removed from that stack first (an
    exhausted iterator). `handled`: the last value is the exception that `except` clauses of the frames are handling.
    """

    frames: tuple[FrameLayout, ...]
    delivered: int = 1
    raised: bool = False
    dropped: int = 0
    handled: bool = False

    @property
    def values(self) -> int:
        """How many live values the frames hold."""
        return sum(2 + frame.constructed + len(frame.slots) + frame.stack.count("value") for frame in self.frames)

    @property
    def name(self) -> str:
        inner = self.frames[-1]
        return f"{inner.code.co_qualname}, continued at {inner.index}"


@record
class Place:
    """A line of the user's program as it shows in tracebacks."""

    file: str
    name: str
    qualname: str
    line: int
    module: str


@record
class BreakReason:
    """Why a region ended in the middle of a call: the parts of a `Diagnostic`."""

    id: str
    reason: str
    location: Location = Location()
    remedy: str = ""


class SuspendedFrames:
    """The callable that a continuation is compiled from: called with live values, it finishes the frames natively.

    `root`: the callable that was compiled. `finish(resumption, values)`: what the frames return, or raise.
    """

    def __init__(self, root: Callable, resumption: Resumption, finish: Callable[[Resumption, tuple], object]) -> None:
        self.root = root
        self.resumption = resumption
        self.finish = finish
        self.__qualname__ = resumption.name

    def __call__(self, *values: object) -> Any:
        return self.finish(self.resumption, values)
