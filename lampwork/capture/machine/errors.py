"""What stops the machine, as opposed to what the interpreted program raises."""

from __future__ import annotations

from typing import Any


class Interruption(BaseException):
    """Stops interpretation without the interpreted program noticing: no `except`, `finally` or `with` of it runs.

    Raise it (or a subclass) from any method of a `World`.  The machine records `frames`, the frames live at that
    moment, outermost first; `handled`, what their `except` clauses were handling; and `depths`, the number of
    frames below each machine run that it passed through, innermost run first.  Then it drops the frames of those
    runs.  Frames are plain data and stay usable: `Machine.resume` goes on with them.
    """

    frames: list[Any] | None = None
    handled: Any = None
    depths: list[int]


class Unsupported(Interruption):
    """The machine cannot interpret what the program does at `location` (file, line) because of `reason`.

    The remedy is to run that part of the program in CPython; the machine never guesses.
    """

    def __init__(self, reason: str, location: tuple[str, int] | None = None) -> None:
        super().__init__(reason, location)
        self.reason = reason
        self.location = location

    def __str__(self) -> str:
        where = "" if self.location is None else f" ({self.location[0]}:{self.location[1]})"
        return f"{self.reason}{where}"
