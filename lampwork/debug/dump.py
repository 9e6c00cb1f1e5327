"""`lampwork explain --dump DIR`: a file for each stage of each graph, in the order of the pipeline, and `repro.py`.

    00_summary.txt        what came out, and what it cost
    01_bytecode.txt       what was interpreted: the function and those it calls
    02_graph.py           the captured operators, as Python
    03_functional.py      the same, pure and simplified
    04_loops.txt          one loop nest an operator
    05_kernels.txt        fused kernels
    06_fusion.txt         fusions that were refused
    07_generated.ll       generated code; 07_generated.py for a GPU
    08_host.py            the function that runs the program
    09_guards.txt         what must hold for the entry to serve a call
    10_entry.py           the compiled guards, the call of the program, effects and result
    repro.py              compiles the graph in a process of its own, with random inputs

Files of a backward pass end in `_backward`. A call that breaks has a folder for each graph.
"""

from __future__ import annotations

import dis
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from lampwork.config import Settings
from lampwork.debug import facts, text
from lampwork.debug.graph_code import NotWritten, graph_code
from lampwork.debug.recorded import Recorded
from lampwork.debug.standalone import input_names, script
from lampwork.ir.artifact import Artifact
from lampwork.ir.continuation import SuspendedFrames
from lampwork.ir.region import FunctionalGraph, RunEagerly
from lampwork.runtime.entry import Entry

#: Sections of the stages' texts: number and name of the file.
FILES = {
    "loops": "04_loops.txt",
    "kernels": "05_kernels.txt",
    "fusion": "06_fusion.txt",
    "host": "08_host.py",
    "llvm": "07_generated.ll",
    "triton": "07_generated.py",
}


def dump(folder: Path, summary: str, graphs: Iterable[Recorded], settings: Settings) -> list[Path]:
    """Writes the files into `folder`, which is made if need be; their paths, in order."""
    compiled = [each for each in graphs if each.artifact and not isinstance(each.artifact.outcome, RunEagerly)]
    several = len(compiled) > 1
    written = []
    lines = []
    for number, each in enumerate(compiled, 1):
        place = folder / f"graph_{number}" if several else folder
        place.mkdir(parents=True, exist_ok=True)
        for name, content in _files(each, settings):
            if not content.strip():
                continue
            (place / name).write_text(content.rstrip() + "\n")
            written.append(place / name)
        assert each.artifact is not None
        lines.append(f"graph_{number}: {each.artifact.name}\n")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "00_summary.txt").write_text("".join(lines) * several + "\n" * several + summary)
    return [folder / "00_summary.txt", *written]


def _files(recorded: Recorded, settings: Settings) -> Iterator[tuple[str, str]]:
    artifact = recorded.artifact
    assert artifact is not None
    yield "01_bytecode.txt", bytecode_text(recorded.function, artifact)
    if recorded.region is not None:
        yield "02_graph.py", _graph(recorded.region.graph, input_names(recorded))
    for half, functional in recorded.functional.items():
        names = input_names(recorded) if not half else ()
        yield f"03_functional{half.replace(' ', '_')}.py", _functional(functional, names)
    for section, found in recorded.texts.items():
        base, _, half = section.partition(" ")
        if base in FILES:
            stem, dot, ending = FILES[base].partition(".")
            yield f"{stem}{'_' * bool(half)}{half}{dot}{ending}", found.text
    yield "09_guards.txt", text.guards(facts.guards(artifact, recorded.function))
    entry = _entry_text(artifact)
    if entry:
        yield "10_entry.py", entry
    yield "repro.py", _python(lambda: script(recorded, settings))


def _python(write: Callable[[], str]) -> str:
    """What `write` gives, or why there is nothing."""
    try:
        return write()
    except NotWritten as why:
        return f"# Not written: {why}.\n"


def _graph(graph: Any, names: Sequence[str]) -> str:
    return _python(lambda: "import torch\n\nimport lampwork._torch\n\n\n" + graph_code(graph, names))


def _functional(functional: FunctionalGraph, names: Sequence[str]) -> str:
    """The graph, and what its outputs are: results, writes, views."""
    code = _graph(functional.graph, names)
    code += "\n# What the outputs are:\n"
    code += "".join(f"#   result {place} = {result}\n" for place, result in enumerate(functional.results))
    code += "".join(f"#   input {index} is overwritten with output {output}\n" for index, output in functional.writes)
    return code + "".join(f"#   derived input: {each}\n" for each in functional.derived)


def _entry_text(artifact: Artifact) -> str:
    try:
        return Entry(artifact, _never, break_point=lambda outcome: (_never, None)).source
    except Exception:  # this process lacks what the artifact names
        return ""


def _never(*arguments: object) -> Any:
    raise AssertionError("an entry made for its text is not called")


# Bytecode ------------------------------------------------------------------------------------------------------------


def bytecode_text(function: Callable, artifact: Artifact) -> str:
    """The byte code of the function, and of those that were interpreted on the way, the user's first."""
    found = {name: code for name in artifact.code_digests if (code := _code_named(name)) is not None}
    root = _code_of(function)
    own = [name for name in found if not name.startswith(("torch.", "builtins:")) and found[name] is not root]
    out = io.StringIO()
    if artifact.code_digests:
        out.write("Interpreted (functions of PyTorch are not listed):\n")
        out.write("".join(f"    {name}\n" for name in artifact.code_digests) + "\n")
    if root is not None:
        _disassemble(root.co_qualname, root, out)
    for name in own:
        _disassemble(name, found[name], out)
    return out.getvalue()


def _disassemble(title: str, code: CodeType, out: io.StringIO) -> None:
    out.write(f"{title}  ({code.co_filename}:{code.co_firstlineno})\n")
    dis.dis(code, file=out, depth=0)
    out.write("\n")


def _code_of(function: Callable) -> CodeType | None:
    if isinstance(function, SuspendedFrames):
        return _code_of(function.root)
    target = getattr(function, "forward", None) if not isinstance(function, FunctionType) else function
    target = getattr(target if target is not None else function, "__func__", target)
    return getattr(target, "__code__", None)


def _code_named(name: str) -> CodeType | None:
    """The code of "module:qualname", where it is still found there."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return getattr(getattr(found, "__func__", found), "__code__", None)
