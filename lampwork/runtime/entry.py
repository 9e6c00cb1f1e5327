"""`Entry`: an artifact made ready to serve calls in this process, as one generated function.

    serve(function, args, kwargs) -> the call's result | MISS when a guard does not hold

The function checks the guards, runs the host program, applies effects and returns. It raises `Rerun` when the program
failed before its commit point; every other exception is the call's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from lampwork.errors import Diagnostic
from lampwork.ir.artifact import Artifact
from lampwork.ir.program import Extern, FromInput, Launch
from lampwork.ir.region import RunEagerly
from lampwork.runtime.guards import compile_check, explain_failure
from lampwork.runtime.host import Host
from lampwork.runtime.templates import TemplateWriter, sources_of

MISS = object()

#: Runs a call eagerly and counts it as a fall-back for the reason given.
Eagerly = Callable[[Diagnostic, bool, tuple, dict], Any]

#: Runs a graph: the values of its inputs -> its results.
Run = Callable[[Sequence[Any]], Sequence[Any]]


class Entry:
    """Guards and program of one artifact, ready to run. Immutable; safe to call from many threads at once.

    Raises `LookupError` when this process does not have what the artifact names (a module that is not loaded, a
    function whose code changed).
    """

    def __init__(self, artifact: Artifact, eagerly: Eagerly, run: Run | None = None) -> None:
        """`run`: what runs the graph in place of the artifact's program (a foreign back end)."""
        self.artifact = artifact
        self.host: Host | None = None
        if isinstance(artifact.outcome, RunEagerly):
            self.serve = self._eager_entry(artifact.outcome, eagerly)
            return
        if run is None:
            self.host = Host(artifact)
            run = self.host.call
        templates = sources_of(artifact.objects, artifact.effects, artifact.outcome)
        known = {id(source) for source in artifact.inputs}
        reads = (*artifact.inputs, *(source for source in templates if id(source) not in known))
        values = {}
        for index, source in reversed(list(enumerate(reads))):
            values[id(source)] = f"values[{index}]"
        kept = frozenset(
            index for index, result in enumerate(artifact.program.results) if isinstance(result, FromInput)
        )
        writer = TemplateWriter(artifact.objects, values, kept)
        lines = writer.write(artifact.effects, artifact.outcome)
        body = "".join(f"    {line}\n" for line in lines)
        self.source = (
            "def serve(function, args, kwargs):\n"
            "    values = check(function, args, kwargs)\n"
            "    if values is None:\n"
            "        return MISS\n"
            f"    results = run({'values' if len(reads) == len(artifact.inputs) else f'values[:{len(artifact.inputs)}]'})\n"
            + body
        )
        self.check = compile_check(artifact.guards, reads)
        namespace = {"check": self.check, "run": run, "MISS": MISS, **writer.constants}
        exec(compile(self.source, f"<lampwork entry {artifact.name}>", "exec"), namespace)
        self.serve = namespace["serve"]

    def _eager_entry(self, outcome: RunEagerly, eagerly: Eagerly) -> Callable:
        check = self.check = compile_check(self.artifact.guards, ())
        diagnostic = Diagnostic(outcome.id, outcome.reason, outcome.location, outcome.remedy)
        is_break = outcome.is_break

        def serve(function: Any, args: tuple, kwargs: dict) -> Any:
            if check(function, args, kwargs) is None:
                return MISS
            return eagerly(diagnostic, is_break, args, kwargs)

        return serve

    def why_missed(self, function: Any, args: tuple, kwargs: dict) -> str:
        """The first guard that does not hold for this call, in words."""
        return explain_failure(self.artifact.guards, function, args, kwargs)

    @property
    def kernels(self) -> int:
        return len(self.artifact.program.kernels)

    @property
    def launches(self) -> int:
        return sum(isinstance(step, Launch) for step in self.artifact.program.steps)

    def extern_calls(self) -> Counter[str]:
        """ATen calls of one call, by operator name."""
        return Counter(step.op for step in self.artifact.program.steps if isinstance(step, Extern))

    def release(self) -> None:
        """Give back memory that is idle."""
        if self.host is not None:
            self.host.release()
