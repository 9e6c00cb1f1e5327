"""What the backward pass of a call keeps of the forward, and the time that keeping less takes."""

from __future__ import annotations

from lampwork.debug.cost import memory_seconds
from lampwork.debug.facts import Facts
from lampwork.graph.partition import Joined
from lampwork.graph.recompute import curve


def budgets(joined: Joined) -> list[Facts]:
    """For some `memory_budget`s: bytes kept, and the estimated milliseconds that they cost beyond those of 1.0."""
    points = curve(joined)
    least = min(point.cost for point in points)
    device = joined.functional.device
    return [
        {"budget": each.budget, "bytes": each.bytes, "ms": memory_seconds(each.cost - least, device) * 1e3}
        for each in points
    ]
