"""The graph stage: from a region as recorded to a pure graph that lowering takes."""

from __future__ import annotations

from collections.abc import Callable

from lampwork.config import Settings, environment
from lampwork.graph.convolutions import simplify_convolutions
from lampwork.graph.freeze import freeze
from lampwork.graph.functionalize import functionalize
from lampwork.graph.products import use_vendor_products
from lampwork.graph.simplify import (
    embed_literals,
    pure,
    remove_dead,
    remove_no_ops,
    separate_outputs,
    share_repeated_work,
)
from lampwork.ir.region import FunctionalGraph, Region

Pass = Callable[[FunctionalGraph], FunctionalGraph]


def passes(settings: Settings) -> tuple[Pass, ...]:
    """The passes, in order.

    `remove_dead` runs first so that later ones look at less, and after what leaves nodes dead.
    """
    return (
        remove_dead,
        embed_literals,
        share_repeated_work,
        remove_no_ops,
        *((freeze, remove_dead) if settings.options.freeze else ()),
        use_vendor_products,
        simplify_convolutions,
        remove_dead,
        separate_outputs,
    )


def prepare(region: Region, settings: Settings) -> FunctionalGraph:
    """The region without side effects, simplified, with vendor products chosen for `settings`.

    Raises `CompileError` for programs that cannot be made pure; the caller then runs the region eagerly.
    """
    functional = functionalize(region)
    for each in passes(settings):
        functional = each(functional)
        if environment.verify:
            pure(functional)
    return functional
