"""`lampwork.explain`: how one call compiles, what kept it from being one piece, and what that cost.

explanation = explain_call(function, args, kwargs)
print(explanation)                 # everything
print(explanation.overview())      # without graphs and code
explanation["kernels"]             # one section
explanation.to_dict()              # the same as data
explanation.html()                 # the same as a page
explanation.dump("folder")         # a file for each stage, and a script that compiles the graph by itself
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lampwork.config import Settings, environment
from lampwork.debug import facts as make
from lampwork.debug import text
from lampwork.debug.facts import Facts
from lampwork.debug.memory import budgets
from lampwork.debug.recorded import Recorded, Recorder
from lampwork.debug.stages import generated_texts, kernels_text
from lampwork.errors import CompileError, Diagnostic, GraphBreak
from lampwork.ir.artifact import Artifact
from lampwork.ir.region import Continue, RunEagerly
from lampwork.runtime.function import CompiledFunction
from lampwork.runtime.guards.compile import source_text
from lampwork.runtime.stats import Record
from lampwork.runtime.wrappers import compiled_of, wrap

#: Sections, those to read first before the stages in the order of the pipeline; what each holds.
SECTIONS = {
    "summary": "what came out",
    "breaks": "what could not be compiled, where, why, and what it cost",
    "fallbacks": "calls that ran eagerly for other reasons",
    "recompiles": "calls that were compiled although entries existed, and the guard that failed",
    "specialised": "sizes that could have varied and are fixed",
    "cuda_graphs": "why launches are not replayed as one",
    "fusion": "operators that did not share a kernel, and what that costs",
    "memory": "what the backward pass keeps of the forward, by memory_budget, and the time it takes to keep less",
    "guards": "what must hold for the compiled entry to serve a call",
    "seconds": "time by stage",
    "history": "what happened so far",
    "graph": "the captured operators",
    "functional": "the same after functionalisation",
    "backward": "the operators of the backward pass",
    "loops": "one loop nest per operator, ATen calls for the rest",
    "kernels": "fused kernels",
    "host": "the function that runs the program",
    "check": "the compiled guards",
    "triton": "generated code of kernels for a GPU",
    "llvm": "generated code",
}
#: Sections that answer questions; the others show stages.
OVERVIEW = (
    "summary", "breaks", "fallbacks", "recompiles", "specialised", "cuda_graphs", "fusion", "memory", "guards",
    "seconds", "history",
)  # fmt: skip


class Explanation(Mapping[str, str]):
    """Sections of text by name (see `SECTIONS`); prints as all of them. `artifact`: None when nothing was compiled."""

    def __init__(
        self,
        sections: dict[str, str],
        artifact: Artifact | None,
        facts: Facts,
        graphs: Sequence[Recorded],
        settings: Settings,
    ) -> None:
        self._sections = {name: sections[name] for name in SECTIONS if sections.get(name)}
        self.artifact = artifact
        self._facts = facts
        self._graphs, self._settings = graphs, settings

    def __getitem__(self, name: str) -> str:
        if name not in self._sections:
            raise KeyError(f"no section {name!r}; there are {', '.join(self._sections)}")
        return self._sections[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sections)

    def __len__(self) -> int:
        return len(self._sections)

    def answer(self) -> str:
        """How the call compiles, and whether there is anything to do, in a few sentences."""
        return text.answer(self._facts)

    def overview(self) -> str:
        """The sections that answer questions, without graphs and code."""
        return self._text([name for name in self._sections if name in OVERVIEW])

    def _text(self, names: list[str]) -> str:
        parts = []
        for name in names:
            title = f"== {name}: {SECTIONS[name]} "
            parts.append(title + "=" * max(0, 100 - len(title)) + "\n\n" + self._sections[name].rstrip() + "\n")
        return "\n".join(parts)

    def __str__(self) -> str:
        return self._text(list(self._sections))

    __repr__ = __str__

    def to_dict(self) -> Facts:
        """Everything but code, as data that JSON can hold (see `debug/facts.py`)."""
        return self._facts

    def dump(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Writes a numbered file for each stage, and a `repro.py` that runs by itself (see `debug/dump.py`) into
        `folder`, which is made if need be. Their paths, in order."""
        from lampwork.debug.dump import dump

        return dump(Path(folder), self.overview(), self._graphs, self._settings)

    def html(self) -> str:
        """One page that needs nothing beside it."""
        from lampwork.debug.html import page

        return page(self._facts, {name: self._sections[name] for name in self._sections if name not in OVERVIEW})


def explain_call(function: Callable, args: tuple, kwargs: dict, settings: Settings | None = None) -> Explanation:
    """Explains the call `function(*args, **kwargs)`. A failure is a section, not an exception.

    The call is compiled, not run, if it compiles as one graph. A call that does not is run once, as what follows a
    break depends on what the program does there; its costs are measured meanwhile. For something `lampwork.compile`
    returned: with its settings, and with all that happened to it so far; it is not run.
    """
    from lampwork import pipeline

    known = _compiled(function)
    if known is not None:
        settings = settings or known.settings
        function = known.function
    settings = settings or Settings()
    recorded = Recorded(function, args, kwargs)
    artifact, failure = None, None
    try:
        artifact = recorded.artifact = pipeline.compile_call(function, args, kwargs, settings, recorded.stage)
    except GraphBreak as stop:
        failure = make.issue(Record(stop.diagnostic, 0), "break")
    except CompileError as error:
        if environment.strict:
            raise
        diagnostic = Diagnostic("compiler-failed", str(error), error.location)
        failure = make.issue(Record(diagnostic, 0), "fallback")
    ran, graphs = known, [recorded]
    if known is None and failure is None and artifact is not None and _is_broken(artifact):
        ran, graphs = _run(function, args, kwargs, settings)
    facts = _facts(function, args, kwargs, artifact, failure, ran)
    facts["numerics"] = settings.options.numerics
    facts["memory"] = budgets(recorded.stages["partition"]) if "partition" in recorded.stages else []
    texts = {name: each.text for name, each in recorded.texts.items()}
    sections = _sections(texts, artifact, _artifacts(artifact, ran), facts)
    return Explanation(sections, artifact, facts, graphs, settings)


def _compiled(function: Callable) -> CompiledFunction | None:
    try:
        return compiled_of(function)
    except TypeError:
        return None


def _is_broken(artifact: Artifact) -> bool:
    outcome = artifact.outcome
    return isinstance(outcome, Continue) or isinstance(outcome, RunEagerly) and outcome.is_break


def _run(function: Callable, args: tuple, kwargs: dict, settings: Settings) -> tuple[CompiledFunction, list[Recorded]]:
    """What `lampwork.compile` would return, after one call, and all that was compiled for it. An exception of the
    program's own is part of the story."""
    recorder, uncached = Recorder(), replace(settings, options=replace(settings.options, cache=False))
    compiled = CompiledFunction(function, uncached, observer=recorder)
    try:
        wrap(compiled)(*args, **kwargs)
    except Exception:
        pass
    return compiled, recorder.compiles


def _facts(
    function: Callable,
    args: tuple,
    kwargs: dict,
    artifact: Artifact | None,
    failure: Facts | None,
    ran: CompiledFunction | None,
) -> Facts:
    stats = ran.counters.snapshot(ran.entries, ran.continuations) if ran is not None else None
    issues = make.issues(stats, function) if stats is not None else []
    if failure is not None and failure["id"] not in [each["id"] for each in issues]:
        issues.append(failure)
    outcome = artifact.outcome if artifact is not None else None
    if isinstance(outcome, Continue) and outcome.reason.id not in [each["id"] for each in issues]:
        issues.append(make.planned(outcome))
    if isinstance(outcome, RunEagerly) and outcome.id not in [each["id"] for each in issues]:
        issues.append(make.planned(outcome))
    if artifact is not None:
        known = [each["reason"] for each in issues]
        fixed = [make.issue(Record(diagnostic, 1), "specialised", function) for diagnostic in artifact.specialised]
        issues += [each for each in fixed if each["reason"] not in known]
    guard_us = None if artifact is None else make.guard_microseconds(artifact, function, args, kwargs)
    artifacts = _artifacts(artifact, ran)
    if ran is not None and artifact is not None and guard_us is not None:
        make.tell_what_follows(issues, artifact, ran, guard_us / max(len(artifact.guards), 1))
    programs = [each.program for each in artifacts if not isinstance(each.outcome, RunEagerly)]
    kernels = [kernel for program in programs for kernel in make.kernels(program)]
    fusions = [fusion for program in programs for fusion in make.fusions(program)]
    return {
        "name": getattr(function, "__qualname__", type(function).__qualname__),
        "graphs": [make.graph(each) for each in artifacts],
        "issues": issues,
        "fusions": sorted(fusions, key=lambda each: -each["bytes"]),
        "guards": make.guards(artifact, function) if artifact is not None else [],
        "guard_us": guard_us,
        "kernels": kernels,
        "moved_bytes": sum(each["launches"] * (each["read_bytes"] + each["written_bytes"]) for each in kernels),
        "stages_ms": {name: time * 1e3 for name, time in artifact.compile_seconds.items()} if artifact else {},
        "history": make.history(stats) if stats is not None else None,
    }


def _artifacts(artifact: Artifact | None, ran: CompiledFunction | None) -> list[Artifact]:
    """What serves the call: the entry made for it, and those after its breaks."""
    continued = ran.continuations.values() if ran is not None else ()
    found = [] if artifact is None else [artifact]
    return found + [entry.artifact for part in continued for entry in part.entries]


def _sections(
    texts: Mapping[str, str], artifact: Artifact | None, artifacts: list[Artifact], facts: Facts
) -> dict[str, str]:
    sections = {"summary": text.summary(facts)}
    names = {
        "break": "breaks",
        "fallback": "fallbacks",
        "recompile": "recompiles",
        "specialised": "specialised",
        "graph": "cuda_graphs",
    }
    for kind, name in names.items():
        sections[name] = text.issues(each for each in facts["issues"] if each["kind"] == kind)
    sections["fusion"] = text.fusions(facts["fusions"])
    sections["memory"] = text.memory(facts["memory"])
    sections["guards"] = text.guards(facts["guards"])
    sections["seconds"] = "\n".join(f"{name:12s} {time / 1e3:.4f}" for name, time in facts["stages_ms"].items())
    if facts["history"] is not None:
        sections["history"] = text.history(facts["history"])
    sections |= {name: texts[name] for name in ("graph", "functional", "backward", "loops") if name in texts}
    programs = [each.program for each in artifacts if not isinstance(each.outcome, RunEagerly)]
    sections["kernels"] = "\n\n".join(filter(None, map(kernels_text, programs)))
    if artifact is not None:
        sections["check"] = source_text(artifact.guards, artifact.inputs)
        if not isinstance(artifact.outcome, RunEagerly):
            sections["host"] = artifact.host_source
            sections |= {each.section: each.text for each in generated_texts(artifact.native)}
    return sections
