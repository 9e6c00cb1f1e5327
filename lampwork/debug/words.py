"""Parts of a program in words: lines of the user's source, guards by what they are about."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable

from lampwork.ir.guard import ABOUT, Guard, about
from lampwork.ir.location import Location
from lampwork.ir.source import describe
from lampwork.runtime.guards.recompiles import with_names


def source_line(location: Location) -> str:
    """The text of the line, without its indentation; empty where it is not known."""
    return linecache.getline(location.file, location.line).strip() if location.file and location.line > 0 else ""


def place(location: Location) -> str:
    return f"{location.file}:{location.line}" if location.file else ""


def grouped(guards: Iterable[Guard], function: Callable | None = None) -> dict[str, list[tuple[str, Location]]]:
    """Guards in words with the line that read the value, by `ABOUT`; parameters by name where `function` tells."""
    groups: dict[str, list[tuple[str, Location]]] = {name: [] for name in ABOUT}
    for guard in guards:
        words = guard_words(guard)
        groups[about(guard)].append((with_names(words, function) if function is not None else words, guard.location))
    return {name: found for name, found in groups.items() if found}


def guard_words(guard: Guard) -> str:
    """What the guard says, as the user would put it."""
    return guard.test.words(describe(guard.source))
