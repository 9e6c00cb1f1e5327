"""Every stage that one compile goes through, on request with small tensors treated as large ones, or as for a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from lampwork import pipeline
from lampwork.config import Settings
from lampwork.graph import prepare as graph_stage
from lampwork.ir.target import Target
from lampwork.lower import lower
from lampwork.schedule import schedule
from lampwork.verification.passes import Observed, Watch

#: A GPU as scheduling sees it.
GPU = Target("sm_90", 16, 132, 227 << 10, 50 << 20, 50 << 20, device="cuda")

#: So that small tensors take part.
ALWAYS: dict[str, dict[str, Any]] = {"lampwork.schedule.in_place": {"FEWEST_BYTES": 1}}

#: Thresholds of passes, and what they are where small tensors stand for large ones.
SMALL: dict[str, dict[str, Any]] = {
    "lampwork.schedule.split": {"LARGE_ELEMENTS": 24, "CHUNK_ELEMENTS": 8, "FEW_COLUMNS": 40, "ROWS_AT_ONCE": 2},
    "lampwork.schedule.cascade": {"STEPS": 2, "VECTOR_STEPS": 1, "BLOCKS": 2, "LANES": 16},
    "lampwork.schedule.loops": {
        "WORTH_A_THREAD_NS": 20, "ENOUGH_ITERATIONS": 4, "FEW_ITERATIONS": 3, "SMALLEST_CHUNK": 64,
        "LARGEST_CHUNK": 64, "COLUMN_BLOCK": 16,
    },
    "lampwork.schedule.regions": {"SMALLEST_REGION": 4, "FEWEST_REGIONS": 2},
    "lampwork.schedule.fuse": {"LARGE_ELEMENTS": 64, "FEW_ROWS": 3},
    "lampwork.schedule.horizontal": {"FEWEST_ROWS": 3},
    "lampwork.graph.repeated": {"FEWEST": 3},
    "lampwork.graph.partition": {"_OPTIONAL_NUMEL": 4},
}  # fmt: skip


def observe(
    function: Callable, args: tuple, kwargs: dict, settings: Settings, states: Any = None, small: bool = False
) -> Observed:
    """Compiles the call; raises what the pipeline raises. `small`: with the thresholds of `SMALL`."""
    watch = Watch()
    with watch.standing_in(ALWAYS | (SMALL if small else {})):
        watch.observed.artifact = pipeline.compile_call(function, args, kwargs, settings, watch.see, states=states)
    return watch.observed


def observe_gpu(observed: Observed, settings: Settings) -> Observed:
    """The same program as a GPU's graph passes and schedule would have it, over tensors of the CPU. There is no machine
    code, and no artifact."""
    assert observed.region is not None
    watch, region = Watch(), replace(observed.region, graph=observed.recorded)
    watch.observed.region, watch.observed.recorded = region, observed.recorded
    with watch.standing_in(ALWAYS), patch.object(graph_stage, "program_device", lambda graph: "cuda:0"):
        if region.joint is not None:
            halves = graph_stage.prepare_halves(region, settings)
            assert watch.observed.halves is not None
            watch.observed.halves.link = halves.link
            graphs = [halves.forward, halves.backward]
        else:
            graphs = [graph_stage.prepare(region, settings, copies=True)]
        for stage, graph in zip(("lower", "lower backward"), graphs):
            if graph is not None:
                lowered = lower(replace(graph, device="cpu"), settings)
                watch.see(stage, lowered)
                watch.see(stage.replace("lower", "schedule"), schedule(lowered, settings, GPU))
    return watch.observed
