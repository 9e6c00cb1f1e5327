"""`case`: the table of cases. Each is a function that a process of its own runs, and which fails by raising.

@case("forks", seconds=60)
def while_another_thread_compiles(seed): ...
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

#: Files with cases, in the order in which they run.
FILES = ("signals", "forks", "folders", "disks", "memory", "processes", "threads", "surroundings", "endings")


@dataclass(frozen=True)
class Case:
    """`seconds`: after so long its process hangs. `quick`: part of the ordinary suite. `times`: with so many seeds."""

    file: str
    name: str
    run: Callable[[int], Any]
    seconds: float
    quick: bool
    times: int
    environment: dict[str, str | None] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        return f"{self.file}.{self.name}"


_cases: dict[str, Case] = {}


def case(
    *, seconds: float = 60, quick: bool = False, times: int = 1, environment: dict[str, str | None] | None = None
) -> Callable:
    """Adds a function of one argument, the seed, to the table. `environment`: variables that its process begins with,
    None for those that it lacks."""

    def add(function: Callable[[int], Any]) -> Callable[[int], Any]:
        file = function.__module__.rpartition(".")[2]
        made = Case(file, function.__name__, function, seconds, quick, times, environment or {})
        _cases[made.full_name] = made
        return function

    return add


def cases() -> list[Case]:
    """All cases, file by file."""
    for file in FILES:
        importlib.import_module(f"tests.faults.{file}")
    return list(_cases.values())


class Skipped(Exception):
    """This machine cannot do what the case needs; the text says what that is."""
