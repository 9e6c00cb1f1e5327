"""Findings as runnable scripts, and the table of counts."""

from __future__ import annotations

import collections
import re
import textwrap
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tests.fuzz.check import Finding
from tests.fuzz.judge import KINDS
from tests.fuzz.program import Program
from tests.fuzz.run import arguments_of
from tests.fuzz.thresholds import lowered

RIGHT = "right"


@dataclass
class Found:
    """One class of findings: the first program, reduced, and the seeds that led to it."""

    finding: Finding
    program: Program | None
    seeds: list[int] = field(default_factory=list)

    @property
    def key(self) -> tuple:
        return (self.finding.kind, self.program.operators() if self.program else ("?",))


def headline(finding: Finding) -> str:
    return f"# {finding.kind}: {finding.where}: {finding.detail}"


def script(program: Program, finding: Finding | None = None) -> str:
    """The program as a file that runs by itself: inputs as literals, calls of eager and compiled, what they return."""
    lines = []
    if finding:
        lines.append(headline(finding))
    lines += [
        "import torch",
        "import torch.nn.functional as F",
        "from math import inf, nan",
        "",
        "import lampwork",
        "from tests.fuzz import inputs",
        "from tests.fuzz.run import overwrite",
        "from tests.fuzz.samples import functions",
        "from tests.fuzz.thresholds import as_if_large",
        "",
    ]
    for name, value in program.names.items():
        if re.search(rf"\b{name}\b", program.text()):
            lines.append(f"{name} = {value if isinstance(value, str) else definition(name, value)}")
    body = _compiled_and_called(program)
    if lowered(program.seed):
        lines.append(f"with as_if_large({program.seed}):  # {lowered(program.seed)}")
        body = textwrap.indent(body, "    ")
    return "\n".join([*lines, body]) + "\n"


def _compiled_and_called(program: Program) -> str:
    lines = ["", program.text()]
    arguments = f"dynamic={program.dynamic}" if program.dynamic is not None else ""
    lines.append(f"compiled = lampwork.compile(program{', ' if arguments else ''}{arguments})")
    tensor_names = ", ".join(f"x{index}" for index in range(len(program.inputs)))
    for index, call in enumerate(program.calls):
        lines.append(f"\n# call {index}")
        lines.append("for function in (program, compiled):")
        for place, each in enumerate(arguments_of(program, call)):
            if each.memory.flat.numel() <= 400:
                text = literal(each.leaf, each.memory.flat)
            else:
                spec = program.input_of(place, call)
                text = f"inputs.make(inputs.{spec}, {dict(call.sizes)}, {call.seed * 31 + place}).leaf.detach()"
            lines.append(f"    x{place} = {text}")
            if program.inputs[place].leaf:
                lines[-1] += ".requires_grad_()"
                lines.append(f"    leaf{place} = x{place}")
                if each.tensor is not each.leaf:
                    lines.append(f"    x{place} = x{place}{_view_of(program.inputs[place].leaf, each)}")
        given = ", ".join([each for each in (tensor_names, *(repr(each) for each in call.numbers)) if each])
        lines.append(f"    torch.manual_seed({call.seed})")
        lines.append(f"    with torch.{program.mode}():")
        if program.mode == "inference_mode":
            lines[-1] = "    with torch.inference_mode():"
        lines.append(f"        results = function({given})")
        lines.append(
            "    print([(each, each.stride()) if isinstance(each, torch.Tensor) else each for each in results])"
        )
        if program.grad:
            lines.append(f"    used = [each for index, each in enumerate(results) if not {call.unused} >> index & 1]")
            lines.append("    roots = [each for each in used if isinstance(each, torch.Tensor) and each.requires_grad and each.is_floating_point()]")  # fmt: skip
            lines.append("    weights = [torch.randn(each.shape, generator=torch.Generator().manual_seed(5 + k), dtype=torch.float64).to(each.dtype) for k, each in enumerate(roots)]")  # fmt: skip
            if call.written >= 0:
                names = [*(f"x{place}" for place in range(len(program.inputs))), *(f"results[{place}]" for place in range(len(program.results)))]  # fmt: skip
                lines.append(
                    f"    overwrite({names[call.written % len(names)]}, [{', '.join(names[: len(program.inputs)])}])"
                )
            lines.append("    torch.autograd.backward(roots, weights)")
            leaves = ", ".join(f"leaf{place}.grad" for place, spec in enumerate(program.inputs) if spec.leaf)
            lines.append(f"    print([{leaves}])")
    return "\n".join(lines)


def _view_of(kind: str, each: Any) -> str:
    return {
        "transpose": ".transpose(0, -1)", "slice": "[1::2]", "narrow": f".narrow(-1, 2, {each.leaf.shape[-1] - 3 if each.leaf.dim() else 0})",
        "expand": f".expand({tuple(each.tensor.shape)})",
    }.get(kind, "")  # fmt: skip


def literal(tensor: torch.Tensor, memory: torch.Tensor) -> str:
    """Text that makes the tensor in a storage of the same size."""
    tensor = tensor.detach()
    dtype = str(tensor.dtype)
    text = f"torch.tensor({memory.tolist()}, dtype={dtype})"
    plain = torch.empty(tensor.shape, device="meta").stride()  # `is_contiguous` looks at no stride of size 1
    if tensor.stride() == plain and tensor.storage_offset() == 0 and tensor.numel() == memory.numel():
        return text if tensor.dim() == 1 else f"{text}.view({tuple(tensor.shape)})"
    return f"{text}.as_strided({tuple(tensor.shape)}, {tuple(tensor.stride())}, {tensor.storage_offset()})"


def sendable(program: Program) -> Program:
    """The program with the source of what its text names in place of the values: a function of a sample is no data."""
    return replace(program, names={name: definition(name, value) for name, value in program.names.items()})


def definition(name: str, value: Any) -> str:
    """An expression of which a script makes a value that a program names."""
    if isinstance(value, torch.Tensor):
        return literal(value, torch.empty(0, dtype=value.dtype).set_(value.untyped_storage()))
    return f'functions()["{name}"]'


def table(counts: collections.Counter, found: dict[tuple, Found], seconds: float) -> Any:
    """Counts of programs by outcome, and the classes of findings."""
    from rich.table import Table

    made = Table(title=f"{sum(counts[kind] for kind in (*KINDS, RIGHT))} programs in {seconds:.0f} s")
    made.add_column("outcome")
    made.add_column("programs", justify="right")
    made.add_column("classes", justify="right")
    for kind in (RIGHT, *KINDS):
        classes = sum(each.finding.kind == kind for each in found.values())
        made.add_row(kind, str(counts[kind]), str(classes) if classes else "")
    made.add_section()
    for name in ("eager raised", "left out", "broke", "fell back"):
        made.add_row(name, str(counts[name]), "")
    for name in sorted(each for each in counts if each.startswith("fell back: ")):
        made.add_row("  " + name.removeprefix("fell back: "), str(counts[name]), "")
    return made
