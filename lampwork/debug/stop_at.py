"""LAMPWORK_STOP_AT: an entry whose program is interpreted from a stage on, so that a wrong answer is bisected by hand.

    graph        the captured graph, operator by operator, by torch
    functional   the graph after the passes over it, by torch
    lowered      loop nests by numpy, calls of ATen by torch
    scheduled    fused kernels on their planned memory, by numpy; the rest by torch

Guards, effects and autograd are those of the entry. Where the answer is right from one of these stages on and wrong
from the next, the defect is between them; where all of them are right, it is in code generation.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from lampwork import _torch
from lampwork.backends import backend_of
from lampwork.debug.interpret.graphs import prepacked, run_functional, run_recorded, snapshot
from lampwork.debug.interpret.nests import run_lowered
from lampwork.debug.interpret.steps import run_program
from lampwork.errors import CompileError, LampworkWarning
from lampwork.ir.artifact import Artifact
from lampwork.ir.program import FromInput, Program, Result, ViewOfInput, raised_inputs
from lampwork.ir.region import FunctionalGraph, RunEagerly
from lampwork.runtime.launch.host import Rerun, versioned, view_result
from lampwork.runtime.launch.unbacked_sizes import AssumptionFailed
from lampwork.runtime.observer import Run


class KeptStages:
    """What the stages of one compile made, kept for `interpreters`."""

    def __init__(self, stop_at: str) -> None:
        self.stop_at = stop_at
        self.kept: dict[str, Any] = {}

    def stage(self, name: str, value: Any) -> None:
        if name == "capture":
            self.kept.clear()  # of a capture before this one, with symbols
            if value.graph is not None:
                self.kept[name] = replace(value, graph=snapshot(value.graph))
        elif name.startswith("prepare"):
            self.kept[name] = replace(value, graph=snapshot(value.graph))
        elif name.startswith(("lower", "schedule")):
            self.kept[name] = value

    def interpreters(self, artifact: Artifact) -> tuple[Run, Run | None] | None:
        """What runs the program and its backward pass from the stage on; None for calls that run eagerly.

        Raises `CompileError` for programs that cannot be interpreted from there.
        """
        if isinstance(artifact.outcome, RunEagerly):
            return None
        stage = self.stop_at
        if stage in ("lowered", "scheduled") and not backend_of(artifact.program.device).is_host:
            raise CompileError(
                f"LAMPWORK_STOP_AT={stage}",
                f"loops are interpreted on the CPU, and this program is on {artifact.program.device}; "
                "graph and functional run there",
            )
        if stage == "graph" and artifact.backward is not None:
            text = "results require grad: the program is interpreted from `functional` on, where it is two graphs"
            warnings.warn(f"lampwork: LAMPWORK_STOP_AT=graph: {text}", LampworkWarning, stacklevel=2)
            stage = "functional"
        forward = self._run(stage, "", artifact.program)
        link = artifact.backward
        if link is None or link.artifact is None:
            return forward, None
        return forward, self._run(stage, " backward", link.artifact.program)

    def _run(self, stage: str, half: str, program: Program) -> Run:
        if stage == "graph":
            graph = self.kept["capture"].graph
            return _Interpreted(lambda values: run_recorded(graph, values), program)
        functional: FunctionalGraph = self.kept[f"prepare{half}"]
        if stage == "functional":
            return _Interpreted(lambda values: run_functional(functional, values), program)
        derived = functional.derived
        if stage == "lowered":
            lowered = self.kept[f"lower{half}"]
            return _Interpreted(lambda values: run_lowered(lowered, [*values, *prepacked(derived, values)]), program)
        return _Interpreted(lambda values: run_program(program, [*values, *prepacked(derived, values)]), program)


class _Interpreted:
    """Runs a program as `Host.call` does, by `interpret(values)`."""

    def __init__(self, interpret: Callable[[list[object]], list[object]], program: Program) -> None:
        self.interpret, self.program = interpret, program

    def __call__(self, values: Sequence[Any], generation: object = None) -> Sequence[object]:
        inputs = list(values)
        plain = [each.detach() if isinstance(each, torch.Tensor) else each for each in inputs]
        try:
            with torch.no_grad(), _torch.below_autograd():
                results = self.interpret(plain)
        except AssumptionFailed as error:
            raise Rerun from error
        _torch.increment_version(*[inputs[index] for index in raised_inputs(self.program)])
        return versioned(self.program, map(partial(_as_result, inputs), self.program.results, results))


def _as_result(inputs: list[Any], kind: Result, value: Any) -> Any:
    """A result as the host function returns it: an input is that object, a view of one knows its base."""
    if isinstance(kind, FromInput):
        return inputs[kind.input]
    if isinstance(kind, ViewOfInput) and value.dtype is inputs[kind.input].dtype and not kind.conjugate:
        base = inputs[kind.input]
        depth = value.storage_offset() - base.storage_offset()
        return view_result(base, value.dtype, value.shape, value.stride(), depth)
    return value
