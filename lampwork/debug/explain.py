"""`lampwork.explain`: how one call compiles, by stage, as text.

explanation = explain_call(function, args, kwargs)
print(explanation)                 # everything
explanation["kernels"]             # one section
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lampwork.config import Settings, environment
from lampwork.errors import CompileError, Diagnostic, GraphBreak
from lampwork.ir.artifact import Artifact
from lampwork.ir.guard import (
    ArgumentCount,
    ClassLookup,
    Distinct,
    Equals,
    FunctionIs,
    Guard,
    HasKey,
    IsObject,
    KeysAre,
    LengthIs,
    ModuleIsPlain,
    SameObject,
    StorageGroups,
    TensorIs,
    TypeIs,
)
from lampwork.ir.loops import Location
from lampwork.ir.program import DeviceKernel, Extern, Launch
from lampwork.ir.region import RunEagerly
from lampwork.ir.source import describe
from lampwork.runtime.guards import source_text
from lampwork.runtime.reading import short

#: Sections in the order of the pipeline; what each holds.
SECTIONS = {
    "summary": "what came out",
    "breaks": "what could not be compiled, where and why",
    "guards": "what must hold for the compiled entry to serve a call",
    "graph": "the captured operators",
    "functional": "the same after functionalisation",
    "loops": "one loop nest per operator, ATen calls for the rest",
    "kernels": "fused kernels",
    "fusion": "loop nests that stayed apart, and why",
    "host": "the function that runs the program",
    "check": "the compiled guards",
    "triton": "generated code of kernels for a GPU",
    "llvm": "generated code",
    "seconds": "time by stage",
}


class Explanation(Mapping[str, str]):
    """Sections of text by name (see `SECTIONS`); prints as all of them. `artifact`: None when nothing was compiled."""

    def __init__(self, sections: dict[str, str], artifact: Artifact | None) -> None:
        self._sections = {name: sections[name] for name in SECTIONS if sections.get(name)}
        self.artifact = artifact

    def __getitem__(self, name: str) -> str:
        return self._sections[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sections)

    def __len__(self) -> int:
        return len(self._sections)

    def __str__(self) -> str:
        parts = []
        for name, text in self._sections.items():
            title = f"== {name}: {SECTIONS[name]} "
            parts.append(title + "=" * max(0, 100 - len(title)) + "\n\n" + text.rstrip() + "\n")
        return "\n".join(parts)

    __repr__ = __str__


def explain_call(function: Callable, args: tuple, kwargs: dict, settings: Settings | None = None) -> Explanation:
    """Compiles the call `function(*args, **kwargs)` without running it. A failure is a section, not an exception.

    For something `lampwork.compile` returned, with its settings.
    """
    from lampwork import pipeline

    compiled = getattr(function, "__lampwork__", None)
    if compiled is not None:
        settings = settings or compiled.settings
        function = compiled.function
    settings = settings or Settings()
    seen: dict[str, Any] = {}
    sections: dict[str, str] = {}
    artifact = None
    try:
        artifact = pipeline.compile_call(function, args, kwargs, settings, seen.__setitem__)
    except GraphBreak as stop:
        sections["breaks"] = str(stop.diagnostic)
    except CompileError as error:
        if environment.strict:
            raise
        sections["breaks"] = f"{error}\nThis is a defect of Lampwork; calls run eagerly."
    _stages(seen, sections)
    if artifact is not None:
        _artifact(artifact, sections)
    return Explanation(sections, artifact)


def _stages(seen: Mapping[str, Any], sections: dict[str, str]) -> None:
    region = seen.get("capture")
    if region is not None:
        sections["graph"] = _graph(region.graph)
        sections["guards"] = guards_text(region.guards)
    if "prepare" in seen:
        sections["functional"] = _graph(seen["prepare"].graph)
    if "lower" in seen:
        from lampwork.ir.print import lowered_text

        sections["loops"] = lowered_text(seen["lower"])
    program = seen.get("schedule")
    if program is not None:
        from lampwork.ir.kernel_print import kernel_text

        launches = Counter(step.kernel for step in program.steps if isinstance(step, Launch))
        sections["kernels"] = "\n\n".join(
            f"# launched {launches[index]} times\n{kernel_text(kernel)}" for index, kernel in enumerate(program.kernels)
        )
        sections["fusion"] = "\n".join(
            f"{each.producer} -> {each.consumer}: {each.reason} ({each.bytes} bytes)" for each in program.refused
        )


def _artifact(artifact: Artifact, sections: dict[str, str]) -> None:
    program = artifact.program
    if isinstance(artifact.outcome, RunEagerly):
        outcome = artifact.outcome
        sections["breaks"] = str(Diagnostic(outcome.id, outcome.reason, outcome.location, outcome.remedy))
        sections.setdefault("guards", guards_text(artifact.guards))
        sections["summary"] = "The call runs eagerly."
    else:
        launches = sum(isinstance(step, Launch) for step in program.steps)
        externs = Counter(step.op for step in program.steps if isinstance(step, Extern))
        lines = [
            f"{len(artifact.guards)} guards, {len(artifact.inputs)} input tensors, {len(artifact.effects)} effects",
            f"{len(program.kernels)} kernels, {launches} launches, workspace of {program.workspace_bytes} bytes",
            f"{sum(externs.values())} ATen calls" + (": " if externs else ""),
            *(f"    {count} x {name}" for name, count in externs.most_common()),
        ]
        sections["summary"] = "\n".join(lines)
        sections["host"] = artifact.host_source
        if artifact.native.kernels:
            sections["triton"] = "\n\n".join(_device_kernel(kernel) for kernel in artifact.native.kernels)
        sections["llvm"] = artifact.native.source
    sections["check"] = source_text(artifact.guards, artifact.inputs)
    sections["seconds"] = "\n".join(f"{name:12s} {seconds:.4f}" for name, seconds in artifact.compile_seconds.items())


def _device_kernel(kernel: DeviceKernel) -> str:
    constants = "".join(f", {name}={value}" for name, value in kernel.constants)
    launch = f"grid ({', '.join(map(str, kernel.grid))}), {kernel.num_warps} warps{constants}"
    sizes = f"{kernel.shared_bytes} bytes of shared memory, {len(kernel.binary)} bytes of {kernel.arch} code"
    return f"# {launch}\n# {sizes}\n{kernel.source}"


def _graph(graph: Any) -> str:
    """One line per node, in the graph's order, with type and source line."""
    lines = []
    for node in graph.nodes:
        if node.op == "placeholder":
            lines.append(f"{node.name}: {_type(node)}")
        elif node.op == "output":
            lines.append(f"return {node.args[0]}")
        else:
            named = "".join(f", {name}={value}" for name, value in node.kwargs.items())
            arguments = ", ".join(str(argument) for argument in node.args) + named
            location = node.meta.get("location")
            where = f"    # {location.file}:{location.line}" if location is not None and location.file else ""
            lines.append(f"{node.name}: {_type(node)} = {node.target}({arguments}){where}")
    return "\n".join(lines)


def _type(node: Any) -> str:
    value = node.meta.get("val")
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(short(each) for each in value) + ")"
    return "?" if value is None else short(value)


def guards_text(guards: tuple[Guard, ...]) -> str:
    """Every guard in words, one a line, with the line of the program that read the value."""
    return "\n".join(_words(guard) + _at(guard.location) for guard in guards)


def _at(location: Location) -> str:
    return f"    # {location.file}:{location.line}" if location.file else ""


def _words(guard: Guard) -> str:
    where = describe(guard.source)
    match guard.test:
        case ArgumentCount(positional, keywords):
            named = f" and {', '.join(keywords)}" if keywords else ""
            return f"called with {positional} positional arguments{named}"
        case TypeIs(ref):
            return f"type of {where} is {ref.module}.{ref.qualname}"
        case Equals(value):
            return f"{where} == {value!r}"
        case IsObject(ref):
            return f"{where} is {ref.module}.{ref.qualname}"
        case FunctionIs(ref):
            return f"{where} is a function with the code of {ref.module}.{ref.qualname}"
        case TensorIs(tensor_type, dtype, shape, strides, device, requires_grad):
            grad = ", requires grad" if requires_grad else ""
            kind = tensor_type.rpartition(".")[2]
            return f"{where} is a {kind} {dtype}{list(shape)} strides {list(strides)} on {device}{grad}"
        case LengthIs(length):
            return f"len({where}) == {length}"
        case KeysAre(keys, ordered):
            return f"keys of {where} are {list(keys)!r}" + ("" if ordered else " in any order")
        case HasKey(key, present):
            return f"{key!r} {'in' if present else 'not in'} {where}"
        case ClassLookup(name, found):
            return f"{where}.{name} is {'absent' if found is None else found.qualname}"
        case SameObject(other):
            return f"{where} is {describe(other)}"
        case Distinct(others):
            return f"{len(others) + 1} objects are different: {where}, " + ", ".join(map(describe, others))
        case StorageGroups(sources, groups):
            return (
                f"{len(sources)} tensors overlap in memory in {len(groups)} groups"
                if groups
                else (f"no two of {len(sources)} tensors overlap in memory")
            )
        case ModuleIsPlain(names, empty):
            return f"{where} has no {', '.join(names)} of its own; {', '.join(empty)} are empty"
    return f"{where}: {guard.test!r}"
