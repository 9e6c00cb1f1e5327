"""Where something came from: lines of the program, operators of the graph. Imported everywhere, imports nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Location:
    """Where in the user's program: file, line, module path such as `encoder.layer.0.attention`."""

    file: str = ""
    line: int = 0
    module: str = ""


@dataclass(frozen=True)
class Origin:
    """Which operator of which graph node this came from, for diagnostics and counts."""

    node: str
    op: str
    location: Location = Location()
