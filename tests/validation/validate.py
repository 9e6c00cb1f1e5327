"""Runs every stage of one compile on the same inputs and names the first that computes something else."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from lampwork import _torch
from lampwork._torch import storage_key
from lampwork.config import Settings
from lampwork.debug.interpret.graphs import GraphRun, NotWide, concrete, prepacked, run_functional, run_recorded
from lampwork.debug.interpret.nests import run_lowered
from lampwork.debug.interpret.steps import run_program, run_steps
from lampwork.errors import GraphBreak, LampworkError
from lampwork.ir.artifact import Artifact
from lampwork.ir.loops import LoopNest
from lampwork.ir.region import RunEagerly
from lampwork.runtime.autograd.tangents import flags
from lampwork.runtime.guards.compile import compile_check
from lampwork.runtime.launch.host import Host
from tests.validation.compare import difference, undecided
from tests.validation.nests import run_items
from tests.validation.observe import Half, Observed, Scheduling, observe, observe_gpu
from tests.validation.values import SEED, Run, run_on, wide_copies

#: Operators whose results nobody says anything about.
UNSET = ("aten::empty", "aten::new_empty", "aten::resize_", "aten::empty_strided")


@dataclass(frozen=True)
class Difference:
    """`stage` is the first that computes something else than what the program means."""

    program: str
    stage: str
    what: str

    def __str__(self) -> str:
        return f"{self.program}: {self.stage}: {self.what}"


@dataclass
class Report:
    """What became of one program. `stages`: how many were run. `skipped`: why nothing was."""

    program: str
    stages: int = 0
    skipped: str = ""
    #: Elements of results, and those among them that are not compared.
    elements: int = 0
    undecided: int = 0
    differences: list[Difference] = field(default_factory=list)
    seconds: float = 0.0


@dataclass
class Stage:
    name: str
    run: Callable[[list[Any]], Sequence[Any]]


def validate(
    name: str,
    function: Callable,
    calls: Sequence[tuple[tuple, dict]],
    settings: Settings | None = None,
    native: bool = True,
    states: Any = None,
    kind: str = "plain",
) -> Report:
    """Compiles the first call, and runs every stage on each of `calls` that the entry serves.

    `kind`: "plain"; "small", where thresholds are lowered, so that small tensors are treated as large ones; or "gpu",
    where what a GPU's passes make is run besides, down to kernels.
    """
    report = Report(name)
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _validate(report, function, calls, settings or Settings(), native, states, kind)
    finally:
        report.seconds = time.perf_counter() - start
    return report


def _validate(
    report: Report,
    function: Callable,
    calls: Sequence[tuple[tuple, dict]],
    settings: Settings,
    native: bool,
    states: Any,
    kind: str,
) -> None:
    args, kwargs = calls[0]
    try:
        observed = observe(function, args, kwargs, settings, states, small=kind == "small")
    except GraphBreak as stop:
        report.skipped = str(stop.diagnostic.reason)
        return
    artifact, region = observed.artifact, observed.region
    if artifact is None or region is None or isinstance(artifact.outcome, RunEagerly) or region.graph is None:
        report.skipped = getattr(artifact and artifact.outcome, "reason", "no graph")
        return
    gpu = observe_gpu(observed, settings) if kind == "gpu" else None
    check = compile_check(artifact.guards, artifact.inputs)
    for place, (args, kwargs) in enumerate(calls):
        values = check(function, args, kwargs)
        if values is None:
            if place == 0:
                report.differences.append(
                    Difference(report.program, "guards", "they refuse the call they were made of")
                )
            continue
        label = report.program if place == 0 else f"{report.program} (call {place})"
        if kind != "gpu":
            _Validation(report, observed, label, native).run(list(values))
        elif gpu is not None:
            _Validation(report, gpu, f"{label} gpu", False).run(list(values))


class _Validation:
    """All stages of one compile on one call's inputs."""

    def __init__(self, report: Report, observed: Observed, label: str, native: bool) -> None:
        self.report, self.observed, self.label, self.native = report, observed, label, native

    def run(self, values: list[Any]) -> None:
        observed = self.observed
        recorded = observed.recorded
        if observed.region is not None and observed.region.joint is None:
            (part,) = observed.parts
            stages = [
                Stage(
                    f"graph: {name}",
                    lambda inputs, g=graph, n=name: run_functional(g, inputs, finished=n == "separate_outputs"),
                )
                for name, graph in part.graphs
            ]
            expected = run_on(values, lambda inputs: run_recorded(recorded, inputs))
            self.compare(
                expected,
                run_wide(values, lambda inputs: run_recorded(recorded, inputs, wide=True)),
                values,
                [*stages, *self.below(part, observed.artifact)],
            )
            return
        tangents = self.tangents(values, recorded)
        values = [*values, *tangents]
        expected = run_on(values, lambda inputs: run_recorded(recorded, inputs))
        wide = run_wide(values, lambda inputs: run_recorded(recorded, inputs, wide=True))
        stages = [
            Stage(
                f"joint graph: {name}",
                lambda inputs, g=graph, n=name: run_functional(g, inputs, finished=n == "separate_outputs"),
            )
            for name, graph in observed.joint
        ]
        stages.append(Stage("partition", self.both_halves))
        self.compare(expected, wide, values, stages)
        self.halves(values)

    def compare(self, expected: Run, wide: Run | None, values: list[Any], stages: list[Stage]) -> bool:
        """Whether all stages give what is expected; notes the first that does not."""
        others = dict(wide.leaves()) if wide is not None else {}
        shared = sharing(expected)
        for name, value in expected.leaves():
            self.report.elements += value.numel() if isinstance(value, torch.Tensor) else 1
            self.report.undecided += undecided(value, others.get(name))
        for stage in stages:
            try:
                found = run_on(values, stage.run)
            except Exception as error:
                return self.differs(stage, f"{type(error).__name__}: {error}")
            self.report.stages += 1
            ours, theirs = found.leaves(), expected.leaves()
            if len(ours) < len(theirs):
                return self.differs(stage, f"{len(found.results)} results instead of {len(expected.results)}")
            for (name, value), (_, wanted) in zip(_aligned(ours, theirs), theirs):
                what = difference(value, wanted, others.get(name))
                if what:
                    return self.differs(stage, f"{name}: {what}")
            if sharing(found)[: len(shared)] != shared:
                return self.differs(stage, f"results share memory {sharing(found)} instead of {shared}")
        return True

    def differs(self, stage: Stage, what: str) -> bool:
        self.report.differences.append(Difference(self.label, stage.name, what))
        return False

    # Below the graph ------------------------------------------------------------------------------------------------

    def below(self, part: Half, artifact: Artifact | None) -> list[Stage]:
        derived = part.graphs[-1][1].derived
        with_derived = lambda inputs: [*inputs, *prepacked(derived, inputs)]
        stages = [Stage("lower", lambda inputs: run_lowered(part.lowered, with_derived(inputs)))]
        for name, items, buffers in _scheduled_items(part.scheduling, part.lowered and part.lowered.copies):
            stages.append(
                Stage(
                    f"schedule: {name}",
                    lambda inputs, i=items, b=buffers: run_items(part.lowered, i, b, with_derived(inputs)),
                )
            )
        before: Any = None
        for name, steps in part.scheduling.steps:
            if before is not None and (before.kernels, before.steps) == (steps.kernels, steps.steps):
                continue
            before = steps
            stages.append(Stage(f"schedule: {name}", lambda inputs, s=steps: run_steps(s, with_derived(inputs))))
        stages.append(Stage("schedule: places", lambda inputs: run_program(part.program, with_derived(inputs))))
        if self.native and artifact is not None:
            host = Host(artifact)
            stages.append(Stage("native", lambda inputs: host.call(list(inputs))))
        return stages

    # Halves ---------------------------------------------------------------------------------------------------------

    def tangents(self, values: list[Any], recorded: Any) -> list[torch.Tensor]:
        """Random tangents of the joint graph, as they are laid out in it."""
        placeholders = [node for node in recorded.nodes if node.op == "placeholder"]
        sizes = GraphRun(recorded, [*values, *[None] * (len(placeholders) - len(values))]).sizes
        generator = torch.Generator().manual_seed(SEED)
        made = []
        for node in placeholders[len(values) :]:
            fake = node.meta["val"]
            shape = [concrete(size, sizes) for size in fake.size()]
            strides = [concrete(step, sizes) for step in fake.stride()]
            tangent = torch.empty_strided(shape, strides, dtype=fake.dtype)
            made.append(tangent.copy_(torch.randn(shape, generator=generator, dtype=torch.float64)))
        return made

    def saved(
        self, results: Sequence[Any], inputs: Sequence[Any], before: Sequence[Any], tangents: list[Any]
    ) -> list[Any]:
        """The backward program's inputs. `before`: the forward program's inputs as they were."""
        link = self.observed.halves.link  # type: ignore[union-attr]
        saved = [inputs[index] for index in link.saved_inputs] + [results[index] for index in link.saved_results]
        numbers = [results[index] for index in link.numbers]
        return [*saved, *numbers, *tangents, *flags(link.told, tangents, "cpu")]

    def both_halves(self, inputs: list[Any]) -> list[Any]:
        halves = self.observed.halves
        assert halves is not None and self.observed.region is not None and self.observed.region.joint is not None
        count, joint = len(self.observed.region.inputs), self.observed.region.joint
        own, tangents = inputs[:count], inputs[count:]
        results = run_functional(halves.forward, own)
        gradients = []
        if halves.backward is not None:
            gradients = run_functional(halves.backward, self.saved(results, own, inputs, tangents))
        return [*results[: joint.results + joint.hidden], *gradients]

    def halves(self, values: list[Any]) -> None:
        halves, region = self.observed.halves, self.observed.region
        assert halves is not None and region is not None
        count = len(region.inputs)
        own, tangents = values[:count], values[count:]
        forward = self.observed.parts[0]
        expected = run_on(own, lambda inputs: run_functional(halves.forward, inputs))
        stages = [
            Stage(
                f"forward graph: {name}",
                lambda inputs, g=graph, n=name: run_functional(g, inputs, finished=n == "separate_outputs"),
            )
            for name, graph in forward.graphs[1:]
        ]
        wide = run_wide(own, lambda inputs: run_functional(halves.forward, inputs, wide=True))
        self.compare(expected, wide, own, [*stages, *_named("forward", self.below(forward, self.observed.artifact))])
        if halves.backward is None or len(self.observed.parts) < 2:
            return
        backward = self.observed.parts[1]
        saved = self.saved(expected.results, expected.inputs, own, tangents)
        expected = run_on(saved, lambda inputs: run_functional(halves.backward, inputs))
        stages = [
            Stage(
                f"backward graph: {name}",
                lambda inputs, g=graph, n=name: run_functional(g, inputs, finished=n == "separate_outputs"),
            )
            for name, graph in backward.graphs[1:]
        ]
        link = self.observed.artifact.backward if self.observed.artifact is not None else None
        made = self.below(backward, link.artifact if link is not None else None)
        wide = run_wide(saved, lambda inputs: run_functional(halves.backward, inputs, wide=True))
        self.compare(expected, wide, saved, [*stages, *_named("backward", made)])


def run_wide(values: list[Any], call: Callable[[list[Any]], Sequence[Any]]) -> Run | None:
    """What a graph gives in float64; None where it means something else there."""
    try:
        inputs = wide_copies(values)
        torch.default_generator.manual_seed(SEED)
        with torch.no_grad(), _torch.below_autograd():
            return Run(list(call(inputs)), inputs)
    except (NotWide, ValueError, RuntimeError, TypeError, IndexError, NotImplementedError, LampworkError):
        return None


def _named(half: str, stages: list[Stage]) -> list[Stage]:
    return [Stage(f"{half}, {stage.name}", stage.run) for stage in stages]


def _aligned(ours: list[tuple[str, Any]], theirs: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    found = dict(ours)
    return [(name, found.get(name)) for name, _ in theirs]


def sharing(run: Run) -> list[Any]:
    """For each result that is a tensor, the input whose memory it lies in and how deep, or None."""
    inputs = {storage_key(each): place for place, each in reversed(list(enumerate(run.inputs))) if _has_memory(each)}
    found: list[Any] = []
    for value in run.results:
        place = inputs.get(storage_key(value)) if _has_memory(value) else None
        found.append(None if place is None else (place, value.storage_offset()))
    return found


def _has_memory(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided and bool(value.numel())


def _scheduled_items(scheduling: Scheduling, copies: Any) -> list[tuple[str, list[Any], Any]]:
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
