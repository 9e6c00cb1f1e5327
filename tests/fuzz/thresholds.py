"""Programs of a few elements that are compiled as large ones are.

What a compiler does from some size on, no small program reaches: a chain of residual blocks gave wrong gradients where
its tensors had 1 MiB, and 100,000 small programs had said nothing. So most seeds lower some of these sizes, or all.
"""

from __future__ import annotations

import random
from contextlib import AbstractContextManager

from tests.thresholds import thresholds

#: Where each is read, and what it may be instead: small tensors are to it what large ones are to its own value.
LOWERED: dict[str, tuple[float, ...]] = {
    "lampwork.fakes.kernels.LARGEST": (4, 16),
    "lampwork.graph.branches.LARGEST_BYTES": (0, 32),
    "lampwork.graph.convolutions.SMALL": (0, 1 << 40),
    "lampwork.graph.partition._OPTIONAL_NUMEL": (0, 4),
    "lampwork.graph.repeated.FEWEST": (1, 2),
    "lampwork.graph.views._FEW_PLACES": (0, 4),
    "lampwork.codegen.host.LARGE_BYTES": (1, 32),
    "lampwork.codegen.host_steps.LARGE_BYTES": (1, 32),
    "lampwork.codegen.launch_sequences.FREED_BYTES": (1, 64),
    "lampwork.schedule.attention.FEWEST_SCORES": (1, 16),
    "lampwork.schedule.build.LARGEST_SCRATCH_BYTES": (0, 32),
    "lampwork.schedule.cascade.BLOCKS": (2, 4),
    "lampwork.schedule.cascade.STEPS": (2, 4),
    "lampwork.schedule.cascade.VECTOR_STEPS": (1, 2),
    "lampwork.schedule.fuse.DEEPEST": (2, 6),
    "lampwork.schedule.fuse.FEW_ROWS": (0, 2),
    "lampwork.schedule.fuse.LARGE_ELEMENTS": (1, 8),
    "lampwork.schedule.fuse.MOST_BUFFERS": (4, 8),
    "lampwork.schedule.horizontal.FEWEST_ROWS": (2, 3),
    "lampwork.schedule.in_place.FEWEST_BYTES": (1, 64),
    "lampwork.schedule.inline.DEEPEST": (2, 6),
    "lampwork.schedule.inline.MOST_REPEATED": (1, 4),
    "lampwork.schedule.inline.MOST_USES": (1, 3),
    "lampwork.schedule.lets.DEEPEST_EXPRESSION": (1, 3),
    "lampwork.schedule.loops.COLUMN_BLOCK": (16, 32),
    "lampwork.schedule.loops.ENOUGH_ITERATIONS": (2, 4),
    "lampwork.schedule.loops.FEW_ITERATIONS": (1 << 10,),
    "lampwork.schedule.loops.LARGEST_CHUNK": (8, 16),
    "lampwork.schedule.loops.SMALLEST_CHUNK": (2, 4),
    "lampwork.schedule.loops.WORTH_A_THREAD_NS": (0.001, 1.0),
    "lampwork.schedule.masks._MOST_POINTS": (1, 4),
    "lampwork.schedule.plan.OWN_MEMORY_BYTES": (1, 64),
    "lampwork.schedule.products.FEWEST_RESULTS": (1, 8),
    "lampwork.schedule.products.SHORTEST_INNER": (1, 2),
    "lampwork.schedule.read_nests.LONGEST_SCORE": (1, 16),
    "lampwork.schedule.regions.FEWEST_REGIONS": (1, 2),
    "lampwork.schedule.regions.SMALLEST_REGION": (1, 4),
    "lampwork.schedule.segment.LONGEST_REPEATED": (2, 4),
    "lampwork.schedule.split.CHUNK_ELEMENTS": (2, 4),
    "lampwork.schedule.split.FEW_COLUMNS": (2, 1 << 20),
    "lampwork.schedule.split.FEW_RESULTS": (2, 1 << 20),
    "lampwork.schedule.split.LARGE_ELEMENTS": (2, 16),
    "lampwork.schedule.split.ROWS_AT_ONCE": (1, 2),
    "lampwork.schedule.tiles.COLUMNS": (2, 8),
    "lampwork.schedule.tiles.FEWEST_ROWS": (2, 4),
    "lampwork.schedule.tiles.LONG_ROW": (16, 64),
    "lampwork.schedule.weighted_sums.FEWEST_SCORES": (1, 16),
}


def lowered(seed: int) -> dict[str, float]:
    """What the program of this seed is compiled with: a quarter of the seeds as it is, a quarter with all lowered."""
    choose = random.Random(f"thresholds of {seed}")
    share = choose.choice((0, 0.2, 0.5, 1))
    return {name: choose.choice(values) for name, values in LOWERED.items() if choose.random() < share}


def as_if_large(seed: int) -> AbstractContextManager[None]:
    """Compiles meanwhile as `lowered(seed)` says."""
    return thresholds(lowered(seed))
