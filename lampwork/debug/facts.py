"""What there is to tell of one call, as plain data: dicts, lists, strings and numbers.

Times are in milliseconds, memory in bytes. A measured cost is a number, one that nobody has measured is None.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lampwork import _torch
from lampwork.debug.cost import guard_seconds, memory_seconds
from lampwork.debug.diagnostics import KINDS, meaning_of, remedy_of
from lampwork.debug.fusion import refusals
from lampwork.debug.words import grouped, source_line
from lampwork.errors import Diagnostic, page_of
from lampwork.ir.artifact import Artifact
from lampwork.ir.location import Location, Origin
from lampwork.ir.program import Extern, Launch, Program
from lampwork.ir.region import Continue, RunEagerly
from lampwork.runtime.function import CompiledFunction
from lampwork.runtime.guards.recompiles import with_names
from lampwork.runtime.stats import Record
from lampwork.schedule.traffic import kernel_traffic

Facts = dict[str, Any]


def issue(record: Record, kind: str = "", function: Callable | None = None) -> Facts:
    """One break, fall-back, recompile, fixed size or refused CUDA graph; arguments by name where `function` tells."""
    diagnostic = record.diagnostic
    meaning = meaning_of(diagnostic.id)
    total = record.seconds * 1e3 if record.seconds else None
    reason = diagnostic.reason if function is None else with_names(diagnostic.reason, function)
    return {
        "id": diagnostic.id,
        "kind": kind or meaning.kind,
        **location(diagnostic.location),
        "reason": first_lines(reason),
        "meaning": meaning.meaning,
        "remedy": remedy_of(diagnostic),
        "page": diagnostic.page,
        "then": None,
        "count": record.count,
        "total_ms": total,
        "each_ms": total / max(record.count, 1) if total is not None else None,
    }


def first_lines(text: str, limit: int = 400) -> str:
    """`text` without what follows a blank line, cut at `limit`: errors of operators go on for pages."""
    text = text.split("\n\n", 1)[0]
    return text if len(text) <= limit else text[: limit - 3] + "..."


def location(where: Location) -> Facts:
    """The line of the user's source. `file` is empty and `line` 0 where it is not known."""
    return {"file": where.file, "line": where.line, "source": source_line(where)}


def fusions(program: Program) -> list[Facts]:
    """Refused fusions, most bytes first, each with what the detour through memory costs."""
    found = []
    for refused, count in refusals(program):
        found.append({
            "id": refused.id,
            "producer": operator(refused.producer),
            "consumer": operator(refused.consumer),
            "reason": refused.reason,
            "remedy": meaning_of(refused.id).remedy,
            "page": page_of(refused.id),
            "count": count,
            "bytes": refused.bytes,
            "ms": memory_seconds(refused.bytes, program.device) * 1e3,
        })  # fmt: skip
    return found


def operator(origin: Origin) -> Facts:
    return {"op": origin.op or origin.node or "a value", **location(origin.location)}


def kernels(program: Program) -> list[Facts]:
    """Each kernel: launches of one call, bytes of one launch, memory's time for them, and the lines it computes."""
    launches: Counter[int] = Counter()
    last: dict[int, Launch] = {}
    origins: dict[int, dict[Origin, None]] = {}
    for step in program.steps:
        if isinstance(step, Launch):
            launches[step.kernel] += 1
            last[step.kernel] = step
            origins.setdefault(step.kernel, {}).update(dict.fromkeys(step.origins))
    found = []
    for index, kernel in enumerate(program.kernels):
        read, written = kernel_traffic(kernel, last.get(index))
        found.append({
            "name": kernel.name,
            "launches": launches[index],
            "read_bytes": read,
            "written_bytes": written,
            "memory_ms": memory_seconds(read + written, program.device) * 1e3,
            "lines": _lines(origins.get(index, ())),
        })  # fmt: skip
    return found


def _lines(origins: Iterable[Origin]) -> list[Facts]:
    """Source lines with the operators that they became."""
    by_line: dict[Location, list[str]] = {}
    for origin in origins:
        by_line.setdefault(Location(origin.location.file, origin.location.line), []).append(origin.op)
    return [{**location(where), "ops": list(dict.fromkeys(ops))} for where, ops in by_line.items()]


def graph(artifact: Artifact) -> Facts:
    """One compiled graph in numbers."""
    program = artifact.program
    launches = sum(isinstance(step, Launch) for step in program.steps)
    externs = Counter(_called(step) for step in program.steps if isinstance(step, Extern))
    return {
        "name": artifact.name,
        "runs_eagerly": isinstance(artifact.outcome, RunEagerly),
        "device": program.device,
        "guards": len(artifact.guards),
        "inputs": len(artifact.inputs),
        "effects": len(artifact.effects),
        "kernels": len(program.kernels),
        "launches": launches,
        "aten_calls": dict(externs.most_common()),
        "workspace_bytes": program.workspace_bytes,
        "compile_ms": sum(artifact.compile_seconds.values()) * 1e3,
    }


def _called(call: Extern) -> str:
    """The operator of a call of ATen, or the kernel of the program's own that it launches."""
    if call.op == _torch.LAUNCH and call.args:
        return f"Triton's {_torch.launched_kernel(call.args[0])}"
    return call.op


def guards(artifact: Artifact, function: Callable) -> list[Facts]:
    """Guards in words by what they are about."""
    return [
        {"about": about, "guards": [{"text": text, **location(where)} for text, where in found]}
        for about, found in grouped(artifact.guards, function).items()
    ]


def history(stats: Mapping[str, Any]) -> Facts:
    """What happened to a compiled function so far, in numbers."""
    return {
        **{key: stats[key] for key in ("calls", "captures", "entries", "cache_hits")},
        "compile_ms": {name: seconds * 1e3 for name, seconds in stats["compile_seconds"].items()},
        "cache_notes": list(stats["cache_notes"]),
    }


def issues(stats: Mapping[str, Any], function: Callable) -> list[Facts]:
    """Breaks, other fall-backs, recompiles and refused CUDA graphs, costliest first within each kind."""
    breaks = {record.diagnostic for record in stats["breaks"]}
    found = [issue(record, "break") for record in stats["breaks"]]
    found += [issue(record, "fallback") for record in stats["fallbacks"] if record.diagnostic not in breaks]
    found += [issue(record, "recompile") for record in stats["recompiles"]]
    found += [issue(Record(diagnostic, 1), "specialised", function) for diagnostic in stats["specialised"]]
    refused = Counter(each["refused"] for each in stats["cuda_graphs"] if each["refused"])
    found += [issue(Record(diagnostic, count), "graph") for diagnostic, count in refused.items()]
    order = list(KINDS)
    return sorted(found, key=lambda each: (order.index(each["kind"]), -(each["total_ms"] or 0.0)))


def tell_what_follows(found: list[Facts], artifact: Artifact, ran: CompiledFunction, guard_us: float) -> None:
    """Gives each break of `found` "then": the graphs after it, and what they add to a call that has the break.

    `guard_us`: what one guard of the call's first graph takes; guards of the others are taken to cost as much.
    """
    following: dict[tuple[str, str, int], dict[object, CompiledFunction]] = {}
    entries = [*ran.entries, *(entry for part in ran.continuations.values() for entry in part.entries)]
    for outcome in (artifact.outcome, *(entry.artifact.outcome for entry in entries)):
        if isinstance(outcome, Continue):
            where = outcome.reason.location
            parts = following.setdefault((outcome.reason.id, where.file, where.line), {})
            for resumption in (outcome.after, outcome.otherwise, outcome.raised):
                if resumption is not None and resumption in ran.continuations:
                    parts[resumption] = ran.continuations[resumption]
    for each in found:
        continuations = following.get((each["id"], each["file"], each["line"]))
        if continuations:
            graphs = [graph(entry.artifact) for part in continuations.values() for entry in part.entries]
            guards = max((graph["guards"] for graph in graphs), default=0)
            each["then"] = {
                "graphs": [graph["name"] for graph in graphs],
                "compile_ms": sum(graph["compile_ms"] for graph in graphs),
                "guards": guards,
                "guard_us": guards * guard_us,
                "launches": max((graph["launches"] for graph in graphs), default=0),
            }


def planned(outcome: RunEagerly | Continue) -> Facts:
    """The issue of a call that will run eagerly, or be divided by a break, and has not run yet."""
    if isinstance(outcome, Continue):
        reason = outcome.reason
        return issue(Record(Diagnostic(reason.id, reason.reason, reason.location, reason.remedy), 0), "break")
    diagnostic = Diagnostic(outcome.id, outcome.reason, outcome.location, outcome.remedy)
    return issue(Record(diagnostic, 0), "break" if outcome.is_break else "fallback")


def guard_microseconds(artifact: Artifact, function: Callable, args: tuple, kwargs: dict) -> float | None:
    seconds = guard_seconds(artifact, function, args, kwargs)
    return None if seconds is None else seconds * 1e6
