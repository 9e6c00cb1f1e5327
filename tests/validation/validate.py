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
from lampwork.debug.interpret.graphs import NotWide
from lampwork.errors import GraphBreak, LampworkError
from lampwork.ir.region import RunEagerly
from lampwork.runtime.guards.compile import compile_check
from lampwork.verification.passes import Observed
from lampwork.verification.stages import Chain, Stage, backward_chain, forward_chains, saved_of
from lampwork.verification.values import SEED, Run, run_on, wide_copies
from tests.validation.compare import difference, undecided
from tests.validation.observe import observe, observe_gpu

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
        for chain in forward_chains(self.observed, values, self.native):
            self.run_chain(chain)
        if self.observed.halves is not None and self.observed.halves.backward is not None:
            chain = backward_chain(self.observed, saved_of(self.observed, values), self.native)
            if chain is not None:
                self.run_chain(chain)

    def run_chain(self, chain: Chain) -> None:
        expected = run_on(chain.values, lambda inputs: chain.expected(inputs, False))
        wide = run_wide(chain.values, lambda inputs: chain.expected(inputs, True))
        self.compare(expected, wide, chain.values, chain.stages)

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


def run_wide(values: list[Any], call: Callable[[list[Any]], Sequence[Any]]) -> Run | None:
    """What a graph gives in float64; None where it means something else there."""
    try:
        inputs = wide_copies(values)
        torch.default_generator.manual_seed(SEED)
        with torch.no_grad(), _torch.below_autograd():
            return Run(list(call(inputs)), inputs)
    except (NotWide, ValueError, RuntimeError, TypeError, IndexError, NotImplementedError, LampworkError):
        return None


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
