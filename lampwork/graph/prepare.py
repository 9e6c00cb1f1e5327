"""The graph stage: from a region as recorded to a pure graph that lowering takes."""

from __future__ import annotations

from collections.abc import Callable

from lampwork.config import Settings, environment
from lampwork.graph.functionalize import functionalize
from lampwork.graph.simplify import (
    embed_literals,
    pure,
    remove_dead,
    remove_no_ops,
    separate_outputs,
    share_repeated_work,
)
from lampwork.ir.region import FunctionalGraph, Region

#: In order. `remove_dead` runs first so that later passes look at less, and last to clear up after them.
PASSES: tuple[Callable[[FunctionalGraph], FunctionalGraph], ...] = (
    remove_dead,
    embed_literals,
    share_repeated_work,
    remove_no_ops,
    remove_dead,
    separate_outputs,
)


def prepare(region: Region, settings: Settings) -> FunctionalGraph:
    """The region without side effects, simplified, with vendor products chosen for `settings`.

    Raises `CompileError` for programs that cannot be made pure; the caller then runs the region eagerly.
    """
    functional = functionalize(region)
    for each in PASSES:
        functional = each(functional)
        if environment.verify:
            pure(functional)
    return functional
