"""What one program became: the text of each stage, by part.

    graph    operators as captured, functional, and of the backward pass
    guards   what must hold, in words and as the compiled check
    loops    a loop nest for each operator
    kernels  fused kernels
    code     LLVM or Triton text, and a digest of the machine code
    host     the function that runs the program
    counts   kernels, graphs, breaks, entries; or what was raised

Programs run on the CPU, breaks and continuations included. For a GPU they are captured and compiled as far as Triton's
text, and do not run (`tests/cuda_stand_in.py`). Autograd asks for a GPU where tensors say that they lie on one, so programs
with gradients are captured as on the CPU, and said to be on a GPU after that.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

import lampwork
from lampwork import pipeline
from lampwork.config import Settings
from lampwork.debug.facts import guards as guards_in_words
from lampwork.ir.artifact import Artifact
from lampwork.ir.kernel_print import kernel_text
from lampwork.ir.print import lowered_text
from lampwork.ir.region import RunEagerly
from lampwork.runtime.guards.compile import source_text
from lampwork.runtime.guards.failures import short
from tests.cuda_stand_in import cuda_stand_in
from tests.validation.sources import Program

PARTS = ("graph", "guards", "loops", "kernels", "code", "host", "counts")
KINDS = ("cpu", "gpu")
#: An H100, as PyTorch describes it.
DEVICE = SimpleNamespace(
    name="H100", major=9, minor=0, multi_processor_count=132, shared_memory_per_block_optin=227 << 10,
    L2_cache_size=50 << 20,
)  # fmt: skip


def record(program: Program, kind: str) -> dict[str, str]:
    """The texts of `program` by part, compiled for the device of `kind`."""
    texts = _Texts()
    printed = io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        stack.enter_context(contextlib.redirect_stdout(printed))
        stack.enter_context(contextlib.redirect_stderr(printed))
        stack.enter_context(torch.set_grad_enabled(program.gradients))
        lampwork.reset()
        try:
            (_compile_for_gpu if kind == "gpu" else _run)(program, texts)
        except BaseException as error:  # programs raise SystemExit, too
            texts.note(f"raised {type(error).__name__}: {error}")
    return texts.parts()


def _run(program: Program, texts: _Texts) -> None:
    """Calls the compiled program; what its calls compile is written down."""
    original = pipeline.compile_call

    def compile_call(
        function: Any, args: tuple, kwargs: Any, settings: Settings, observe: Any = None, *rest: Any, **options: Any
    ) -> Any:
        with texts.one_call() as observe:
            artifact = original(function, args, kwargs, settings, observe, *rest, **options)
            texts.artifact(artifact, function)
            return artifact

    settings = program.settings
    compiled = lampwork.compile(
        program.function, fullgraph=settings.fullgraph, dynamic=settings.dynamic, mode=settings.mode,
        options={"freeze": settings.options.freeze, "cache": False, "memory_budget": settings.options.memory_budget},
    )  # fmt: skip
    try:
        with patch.object(pipeline, "compile_call", compile_call):
            for args, kwargs in program.calls:
                compiled(*args, **kwargs)
    finally:
        stats = lampwork.stats(compiled)
        for name in ("breaks", "fallbacks", "recompiles"):
            for each in stats[name]:
                texts.note(f"{name}: {each.diagnostic.id}: {each.diagnostic.reason}")
        texts.note(f"entries: {stats['entries']}, captures: {stats['captures']}")


def _compile_for_gpu(program: Program, texts: _Texts) -> None:
    args, kwargs = program.calls[0]
    with contextlib.ExitStack() as stack:
        if program.gradients:
            stack.enter_context(patch("lampwork.graph.prepare.program_device", lambda graph: "cuda:0"))
        else:
            stack.enter_context(cuda_stand_in())
        stack.enter_context(patch("torch.cuda.get_device_properties", lambda index: DEVICE))
        stack.enter_context(patch("lampwork.codegen.triton.generate.compile_kernels", tuple))
        observe = stack.enter_context(texts.one_call())
        artifact = pipeline.compile_call(program.function, args, kwargs, program.settings, observe)
        texts.artifact(artifact, program.function)


class _Texts:
    """Texts by part, in the order in which calls are compiled."""

    def __init__(self) -> None:
        self.lines: dict[str, list[str]] = {part: [] for part in PARTS}
        self.calls = self.kernels = 0

    def parts(self) -> dict[str, str]:
        self.note(f"graphs: {self.calls}, kernels: {self.kernels}")
        return {part: plain("\n".join(lines)) for part, lines in self.lines.items()}

    def note(self, line: str) -> None:
        self.lines["counts"].append(line)

    @contextlib.contextmanager
    def one_call(self) -> Iterator[Callable[[str, Any], None]]:
        self.calls += 1
        for part in PARTS[:-1]:
            self.lines[part].append(f"# compiled: {self.calls}")
        yield self.stage

    def stage(self, stage: str, value: Any) -> None:
        """What the pipeline's observer is told; a later stage may edit the graph, so its text is made now."""
        first = stage.removesuffix(" backward")
        if first in ("capture", "prepare"):
            graph = getattr(value, "graph", None)
            text = graph_text(graph) if graph is not None else "none"
            self.lines["graph"].append(f"## {stage}\n{text}")
        elif first == "lower":
            self.lines["loops"].append(f"## {stage}\n{lowered_text(value)}")
        elif first == "schedule":
            self.kernels += len(value.kernels)
            self.lines["kernels"].append(f"## {stage}\n" + "\n\n".join(map(kernel_text, value.kernels)))
        elif first == "generate":
            texts = [value.source, *(kernel.source for kernel in value.kernels)]
            facts = [
                f"{each.name} {each.signature} {each.aligned} {each.constants} {each.grid} {each.num_warps} "
                f"{each.num_stages}"
                for each in value.kernels
            ]
            digest = hashlib.sha256(value.image).hexdigest() if value.image else "none"
            names = f"externals {value.externals}, features {value.features}, machine code {digest}"
            self.lines["code"].append("\n".join([f"## {stage}", *texts, *facts, names]))
        elif first == "host":
            self.lines["host"].append(f"## {stage}\n{value}")

    def artifact(self, artifact: Artifact, function: Any) -> None:
        for group in guards_in_words(artifact, function):
            self.lines["guards"] += [group["about"], *(f"  {each['text']}" for each in group["guards"])]
        self.lines["guards"].append(source_text(artifact.guards, artifact.inputs))
        outcome = artifact.outcome
        if isinstance(outcome, RunEagerly):
            self.note(f"runs eagerly: {outcome.id}: {outcome.reason}")
        else:
            self.note(f"ends with {type(outcome).__name__}, effects: {len(artifact.effects)}")


def graph_text(graph: Any) -> str:
    """One line per node, in the graph's order, with type; without the lines of the program that they come from."""
    lines = []
    for node in graph.nodes:
        if node.op == "placeholder":
            lines.append(f"{node.name}: {_type(node)}")
        elif node.op == "output":
            lines.append(f"return {node.args[0]}")
        else:
            named = "".join(f", {name}={value}" for name, value in node.kwargs.items())
            arguments = ", ".join(str(argument) for argument in node.args) + named
            lines.append(f"{node.name}: {_type(node)} = {node.target}({arguments})")
    return "\n".join(lines)


def _type(node: Any) -> str:
    value = node.meta.get("val")
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(short(each) for each in value) + ")"
    return "?" if value is None else short(value)


def plain(text: str) -> str:
    """`text` without addresses in memory, the folder that the checkout is in, and which of the programs with equal
    kernels was the first of the process, whose operators their text names."""
    text = re.sub(r"^# \w+::[^\n]* at [^\n]*:\d+[^\n]*$", "# operators", text, flags=re.MULTILINE)
    text = re.sub(r"0x[0-9a-f]{6,}", "0x", text)
    text = re.sub(r"\b[1-9]\d{12,14}\b", "address", text)  # as a number
    for folder in {os.getcwd(), os.path.dirname(os.path.dirname(lampwork.__file__))}:
        text = text.replace(folder, "")
    return text
