"""All that one compile went through, as stages that run on the same inputs: graph passes by torch, loop nests and
kernels by their interpreters, the machine code as it is.

A `Chain` has the stages of one program, in order, and what they are to give: the graph as it was captured, run by
torch. A region that is differentiated has three: its joint graph, and the two halves that it was cut into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any

import torch
import torch.fx

from lampwork.debug.interpret.graphs import GraphRun, concrete, prepacked, run_functional, run_recorded
from lampwork.debug.interpret.inputs import copies
from lampwork.debug.interpret.nests import run_lowered
from lampwork.debug.interpret.steps import run_program, run_steps
from lampwork.ir.artifact import Artifact
from lampwork.ir.loops import LoopNest
from lampwork.ir.record import record
from lampwork.ir.region import FunctionalGraph
from lampwork.runtime.autograd.tangents import flags
from lampwork.runtime.launch.host import Host
from lampwork.verification.nests import run_items
from lampwork.verification.passes import Half, Observed, Scheduling
from lampwork.verification.values import SEED, run_on

#: The results of a program for the values of its inputs, which it may write to.
RunsOn = Callable[[list[Any]], Sequence[Any]]


@record(frozen=False)
class Stage:
    """`graph`: what a pass over graphs left, if that is what runs."""

    name: str
    run: RunsOn
    graph: FunctionalGraph | None = None


@record(frozen=False)
class Chain:
    """`expected(inputs, wide)` gives what every stage is to give for `values`; with `wide` in float64. `half`: "" for a
    whole program, else "joint", "forward" or "backward". `graph`: what `expected` runs."""

    half: str
    values: list[Any]
    expected: Callable[[list[Any], bool], Sequence[Any]]
    graph: torch.fx.Graph
    stages: list[Stage] = field(default_factory=list)
    part: Half | None = None
    artifact: Artifact | None = None


def forward_chains(observed: Observed, values: list[Any], native: bool = True) -> Iterator[Chain]:
    """Of the program that a call runs: itself; where it is differentiated, the joint graph and its forward half."""
    assert observed.region is not None
    recorded = observed.recorded
    if observed.region.joint is None:
        (part,) = observed.parts
        stages = [*_graph_stages("graph", part.graphs), *_below(part, observed.artifact, native)]
        yield Chain("", values, _recorded(recorded), recorded, stages, part, observed.artifact)
        return
    assert observed.halves is not None
    stages = [*_graph_stages("joint graph", observed.joint), Stage("partition", lambda inputs: _both(observed, inputs))]
    yield Chain("joint", [*values, *tangents(recorded, values)], _recorded(recorded), recorded, stages)
    forward, part = observed.halves.forward, observed.parts[0]
    stages = [*_graph_stages("forward graph", part.graphs[1:]), *_below(part, observed.artifact, native, "forward, ")]
    yield Chain("forward", values, _functional(forward), forward.graph, stages, part, observed.artifact)


def backward_chain(observed: Observed, saved: list[Any], native: bool = True) -> Chain | None:
    """Of the backward half, for the values of its inputs; None where there is none."""
    halves = observed.halves
    if halves is None or halves.backward is None or len(observed.parts) < 2:
        return None
    part, graph = observed.parts[1], halves.backward
    link = observed.artifact.backward if observed.artifact is not None else None
    made = link.artifact if link is not None else None
    stages = [*_graph_stages("backward graph", part.graphs[1:]), *_below(part, made, native, "backward, ")]
    return Chain("backward", saved, _functional(graph), graph.graph, stages, part, made)


def tangents(recorded: torch.fx.Graph, values: list[Any]) -> list[torch.Tensor]:
    """Random tangents of a joint graph, as they are laid out in it."""
    missing = [node for node in recorded.nodes if node.op == "placeholder"][len(values) :]
    fakes = [node.meta["val"] for node in missing]
    run = GraphRun(recorded, [*values, *[None] * len(missing)])
    numbers = lambda sizes: [concrete(size, run.sizes) for size in sizes]
    try:
        layouts = [(numbers(fake.size()), numbers(fake.stride())) for fake in fakes]
    except KeyError:  # a size that contents decide
        run = GraphRun(recorded, [*copies(values), *[None] * len(missing)])
        with torch.random.fork_rng(devices=()):
            run.run_without(missing)
        layouts = [(numbers(fake.size()), numbers(fake.stride())) for fake in fakes]
    generator = torch.Generator().manual_seed(SEED)
    made = []
    for fake, (shape, strides) in zip(fakes, layouts):
        tangent = torch.empty_strided(shape, strides, dtype=fake.dtype, device=fake.device)
        made.append(tangent.copy_(torch.randn(shape, generator=generator, dtype=torch.float64)))
    return made


def saved_values(
    observed: Observed, results: Sequence[Any], inputs: Sequence[Any], before: Sequence[Any], given: list[Any]
) -> list[Any]:
    """The backward program's inputs after a run of the forward program. `before`: its inputs as they were; `given`:
    the tangents."""
    assert observed.halves is not None
    link = observed.halves.link
    saved = [inputs[index] for index in link.saved_inputs] + [results[index] for index in link.saved_results]
    numbers = [results[index] for index in link.numbers]
    return [*saved, *numbers, *given, *flags(link.told, given, "cpu")]


def saved_of(observed: Observed, values: list[Any]) -> list[Any]:
    """The backward program's inputs for a forward program's, with random tangents."""
    assert observed.halves is not None
    forward = observed.halves.forward
    ran = run_on(values, lambda inputs: run_functional(forward, inputs))
    return saved_values(observed, ran.results, ran.inputs, values, tangents(observed.recorded, values))


def _both(observed: Observed, inputs: list[Any]) -> list[Any]:
    """The joint graph's outputs by its two halves."""
    halves, region = observed.halves, observed.region
    assert halves is not None and region is not None and region.joint is not None
    count, joint = len(region.inputs), region.joint
    own, given = inputs[:count], inputs[count:]
    results = run_functional(halves.forward, own)
    gradients: list[Any] = []
    if halves.backward is not None:
        gradients = run_functional(halves.backward, saved_values(observed, results, own, inputs, given))
    return [*results[: joint.results + joint.hidden], *gradients]


def _recorded(graph: torch.fx.Graph) -> Callable[[list[Any], bool], Sequence[Any]]:
    return lambda inputs, wide: run_recorded(graph, inputs, wide)


def _functional(graph: FunctionalGraph) -> Callable[[list[Any], bool], Sequence[Any]]:
    return lambda inputs, wide: run_functional(graph, inputs, wide)


def _graph_stages(what: str, graphs: Sequence[tuple[str, FunctionalGraph]]) -> list[Stage]:
    def runs(graph: FunctionalGraph, finished: bool) -> RunsOn:
        return lambda inputs: run_functional(graph, inputs, finished=finished)

    return [Stage(f"{what}: {name}", runs(graph, name == "separate_outputs"), graph) for name, graph in graphs]


def _below(part: Half, artifact: Artifact | None, native: bool, half: str = "") -> list[Stage]:
    """Stages below the graph: loop nests, kernels, machine code."""
    lowered, program = part.lowered, part.program
    assert lowered is not None and program is not None
    derived = part.graphs[-1][1].derived

    def interpreted(run: Callable[[list[Any]], Sequence[Any]]) -> RunsOn:
        return lambda inputs: run([*inputs, *prepacked(derived, inputs)])

    def of_items(items: list[Any], buffers: Any) -> RunsOn:
        return interpreted(lambda inputs: run_items(lowered, items, buffers, inputs))

    def of_steps(steps: Any) -> RunsOn:
        return interpreted(lambda inputs: run_steps(steps, inputs))

    stages = [Stage(f"{half}lower", interpreted(lambda inputs: run_lowered(lowered, inputs)))]
    for name, items, buffers in scheduled_items(part.scheduling, lowered.copies):
        stages.append(Stage(f"{half}schedule: {name}", of_items(items, buffers)))
    before: Any = None
    for name, steps in part.scheduling.steps:
        if before is not None and (before.kernels, before.steps) == (steps.kernels, steps.steps):
            continue
        before = steps
        stages.append(Stage(f"{half}schedule: {name}", of_steps(steps)))
    stages.append(Stage(f"{half}schedule: places", interpreted(lambda inputs: run_program(program, inputs))))
    if native and artifact is not None:
        host = Host(artifact)
        stages.append(Stage(f"{half}native", lambda inputs: host.call(list(inputs))))
    return stages


def scheduled_items(scheduling: Scheduling, copies: Any) -> list[tuple[str, list[Any], Any]]:
    """The program's items after each pass of scheduling that leaves nests: (pass, items, buffers)."""
    if copies:
        return []  # what the items do, they do to other buffers, too: there are no nests for these
    found = [("levels", _in_order(scheduling, {}), scheduling.buffers)]
    made: dict[str, Any] = dict(scheduling.buffers or {})
    for name, segments in scheduling.passes.items():
        if name == "split" and not segments.buffers:
            continue  # nothing was cut
        made = {**made, **segments.buffers}
        by_level = {prefix: nests for prefix, nests in segments.nests.items() if prefix.count("_") == 1}
        found.append((name, _in_order(scheduling, by_level), made))
    return found


def _in_order(scheduling: Scheduling, replaced: dict[str, list[LoopNest]]) -> list[Any]:
    """Items by level: the nests of a segment, or what a pass made of them, then the calls that follow it."""
    items: list[Any] = []
    levels = scheduling.levels
    for level in range(-1, max(levels, default=-1) + 1):
        here = [item for item, own in zip(scheduling.items, levels) if own == level]
        nests = [item for item in here if isinstance(item, LoopNest)]
        items += replaced.get(f"p{level}_", nests)
        items += [item for item in here if not isinstance(item, LoopNest)]
    return items
