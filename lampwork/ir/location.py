"""Where something came from: lines of the program, operators of the graph. Imported everywhere, imports nothing."""

from __future__ import annotations

from lampwork.ir.record import record


@record
class Location:
    """Where in the user's program: file, line, module path such as `encoder.layer.0.attention`."""

    file: str = ""
    line: int = 0
    module: str = ""


@record
class Origin:
    """Which operator of which graph node this came from, for diagnostics and counts."""

    node: str
    op: str
    location: Location = Location()
