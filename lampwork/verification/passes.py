"""Every pass that one compile goes through, kept so that what it made can be run afterwards.

The pipeline's observer gives what stages hand to each other. What happens inside of the graph stage and of scheduling
is seen by standing in for the passes that they call: `Watch.standing_in()` holds for the whole process.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import field, replace
from typing import Any

from lampwork.debug.interpret.graphs import snapshot
from lampwork.debug.interpret.steps import Steps
from lampwork.graph import partition as halves_stage
from lampwork.graph import prepare as graph_stage
from lampwork.graph import whole_step
from lampwork.graph.partition import Halves
from lampwork.ir.artifact import Artifact
from lampwork.ir.loops import LoopNest
from lampwork.ir.program import Lowered, Program
from lampwork.ir.record import record
from lampwork.ir.region import FunctionalGraph, Region
from lampwork.verification.nests import nest_of, nests_of

# Packages export functions under the names of these modules.
schedule_stage = importlib.import_module("lampwork.schedule.schedule")
segment_stage = importlib.import_module("lampwork.schedule.segment")


@record(frozen=False)
class Segments:
    """Nests of all segments as one pass of scheduling leaves them, by the name that scheduling gives a segment."""

    nests: dict[str, list[LoopNest]] = field(default_factory=dict)
    #: Nests that become one loop.
    groups: list[list[LoopNest]] = field(default_factory=list)
    buffers: dict[str, Any] = field(default_factory=dict)


@record(frozen=False)
class Scheduling:
    """What scheduling went through for one program."""

    items: Sequence[Any] = ()
    levels: Sequence[int] = ()
    buffers: Any = None
    passes: dict[str, Segments] = field(default_factory=dict)
    steps: list[tuple[str, Steps]] = field(default_factory=list)

    def begin(self, items: Sequence[Any], levels: Sequence[int], buffers: dict[str, Any]) -> None:
        """Scheduling begins; it may have begun before, and starts over."""
        self.items, self.levels, self.buffers = items, levels, buffers
        self.passes, self.steps = {}, []


@record(frozen=False)
class Half:
    """One program: its graph by pass, then what the other stages made of it."""

    name: str
    graphs: list[tuple[str, FunctionalGraph]] = field(default_factory=list)
    lowered: Lowered | None = None
    scheduling: Scheduling = field(default_factory=Scheduling)
    program: Program | None = None


@record(frozen=False)
class Observed:
    """One compile. `recorded`: the graph as captured. `joint`: passes before a joint graph is cut; `halves`: the
    cut."""

    region: Region | None = None
    recorded: Any = None
    joint: list[tuple[str, FunctionalGraph]] = field(default_factory=list)
    halves: Halves | None = None
    parts: list[Half] = field(default_factory=list)
    artifact: Artifact | None = None


def text_of(functional: FunctionalGraph) -> tuple:
    """What tells graphs from each other."""
    return str(functional.graph), functional.results, functional.writes, functional.derived


class Watch:
    """What is compiled while `standing_in` lasts is noted in `observed`; `begin_compile` begins a new one."""

    def __init__(self) -> None:
        self.begin_compile()

    def begin_compile(self) -> None:
        self.observed = Observed()
        self.graphs: list[list[tuple[str, FunctionalGraph]]] = []
        self.scheduling = Scheduling()
        self.segment = ""

    # The pipeline's own observer ------------------------------------------------------------------------------------

    def see(self, stage: str, value: Any) -> None:
        name, backward = (stage.removesuffix(" backward"), stage.endswith(" backward"))
        if name == "capture":
            self.observed.region, self.observed.parts, self.observed.joint = value, [], []
            self.observed.recorded = snapshot(value.graph) if value.graph is not None else None
        elif name == "lower":
            place = len(self.observed.parts) + (self.observed.halves is not None)
            self.observed.parts.append(Half("backward" if backward else "forward", self.graphs[place], lowered=value))
            if self.observed.halves is not None:
                self.observed.joint = self.graphs[0]
            self.scheduling = self.observed.parts[-1].scheduling
        elif name == "schedule":
            self.observed.parts[-1].program = value

    # Passes ---------------------------------------------------------------------------------------------------------

    @contextmanager
    def standing_in(self, others: Mapping[str, Mapping[str, Any]] | None = None) -> Iterator[None]:
        """`others`: further names of modules and what stands for them meanwhile, such as thresholds."""
        segment_stage._memo.clear()
        with ExitStack() as stack:

            def put(place: Any, name: str, made: Any) -> None:
                stack.callback(setattr, place, name, getattr(place, name))
                setattr(place, name, made)

            for module, values in (others or {}).items():
                for name, made in values.items():
                    put(importlib.import_module(module), name, made)
            put(graph_stage, "passes", self.watched_passes(graph_stage.passes, "each"))
            put(graph_stage, "_joint_passes", self.watched_passes(graph_stage._joint_passes, "joint"))
            put(graph_stage, "functionalize", self.after(graph_stage.functionalize, self.see_functional))
            put(whole_step, "rematerialise", self.after(whole_step.rematerialise, self.see_recomputed))
            put(halves_stage, "partition", self.after(halves_stage.partition, self.see_halves))
            put(schedule_stage, "find_levels", self.watched_levels(schedule_stage.find_levels))
            put(segment_stage, "_schedule_nests", self.watched_segment(segment_stage._schedule_nests))
            put(segment_stage, "split_reductions", self.watched_split(segment_stage.split_reductions))
            put(segment_stage, "inline", self.after(segment_stage.inline, self.see_operators))
            put(segment_stage, "fuse", self.after(segment_stage.fuse, self.see_groups))
            put(schedule_stage, "reuse_memory", self.watched_reuse(schedule_stage.reuse_memory))
            try:
                yield
            finally:
                segment_stage._memo.clear()  # other programs are scheduled as they are for real

    def after(self, function: Callable, see: Callable[[Any], None]) -> Callable:
        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            see(result)
            return result

        return watched

    def watched_passes(self, function: Callable, kind: str) -> Callable:
        def watched(*args: Any) -> tuple:
            found = function(*args)
            return tuple(self.watched_pass(each, place, kind) for place, each in enumerate(found))

        return watched

    def watched_pass(self, one: Callable, place: int, kind: str) -> Callable:
        name = getattr(getattr(one, "func", one), "__name__", str(one))

        def watched(functional: FunctionalGraph) -> FunctionalGraph:
            if place == 0 and kind == "each":
                self.begin(functional)
            result = one(functional)
            self.note(name, result)
            return result

        return watched

    def begin(self, functional: FunctionalGraph) -> None:
        """A program of its own begins: a half, or the whole where it is not cut."""
        if self.observed.halves is not None:
            self.graphs.append([("partition", replace(functional, graph=snapshot(functional.graph)))])

        else:
            name, recorded = self.graphs[0][0]  # tables of copies are put beside it afterwards
            self.graphs[0][0] = (name, replace(recorded, copies=functional.copies))

    def note(self, name: str, functional: FunctionalGraph) -> None:
        """Keeps the graph, unless it is what the pass before made."""
        last = self.graphs[-1][-1][1] if self.graphs[-1] else None
        if last is not None and text_of(last) == text_of(functional) and name != "separate_outputs":
            return
        self.graphs[-1].append((name, replace(functional, graph=snapshot(functional.graph))))

    def see_functional(self, functional: FunctionalGraph) -> None:
        self.observed.halves, self.graphs = None, [[]]
        self.note("functionalize", functional)

    def see_recomputed(self, functional: FunctionalGraph) -> None:
        self.note("rematerialise", functional)

    def see_halves(self, halves: Halves) -> None:
        self.observed.halves = replace(
            halves,
            forward=replace(halves.forward, graph=snapshot(halves.forward.graph)),
            backward=halves.backward and replace(halves.backward, graph=snapshot(halves.backward.graph)),
        )

    # Scheduling -----------------------------------------------------------------------------------------------------

    def watched_levels(self, function: Callable) -> Callable:
        def watched(items: Sequence[Any], dependences: Any, buffers: Any, *args: Any) -> Any:
            levels = function(items, dependences, buffers, *args)
            self.scheduling.begin(list(items), list(levels), dict(buffers))
            return levels

        return watched

    def watched_segment(self, function: Callable) -> Callable:
        def watched(nests: Any, kept: Any, buffers: Any, live: Any, mutable: Any, target: Any, prefix: str) -> Any:
            self.segment = prefix
            return function(nests, kept, buffers, live, mutable, target, prefix)

        return watched

    def watched_split(self, function: Callable) -> Callable:
        def watched(*args: Any) -> Any:
            nests, made = function(*args)
            self.see_nests("split", [nest for nest, _ in nests])
            self.scheduling.passes["split"].buffers.update({buffer.name: buffer for buffer in made})
            return nests, made

        return watched

    def see_nests(self, stage: str, nests: list[LoopNest]) -> None:
        self.scheduling.passes.setdefault(stage, Segments()).nests[self.segment] = nests

    def see_operators(self, operators: Any) -> None:
        self.see_nests("inline", [nest_of(each) for each in operators])

    def see_groups(self, found: Any) -> None:
        groups = [nests_of(group) for group in found[0]]
        self.see_nests("fuse", [nest for nests in groups for nest in nests])
        self.scheduling.passes["fuse"].groups += groups

    def watched_reuse(self, function: Callable) -> Callable:
        def watched(lowered: Lowered, kernels: Any, steps: Any, buffers: Any) -> Any:
            self.scheduling.steps.append(("kernels", Steps(list(kernels), list(steps), dict(buffers), lowered)))
            result = function(lowered, kernels, steps, buffers)
            made, after, changed, left = result
            self.scheduling.steps.append(("in_place", Steps(list(after), list(changed), dict(left), made)))
            return result

        return watched
