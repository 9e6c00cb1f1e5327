"""What each stage of a compile made, as text: for `explain`, its dumps and LAMPWORK_DEBUG.

Texts are made when the stage ends, since later stages may edit a graph that they own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.fx import Node

from lampwork.debug import facts, text
from lampwork.ir.body import Body, bodies_in
from lampwork.ir.kernel_print import kernel_text
from lampwork.ir.print import lowered_text
from lampwork.ir.program import DeviceKernel, NativeCode, Program
from lampwork.ir.record import record
from lampwork.runtime.guards.failures import short


@record
class StageText:
    """`section`: the name in `explain`; of a backward pass with " backward". `level`: of LAMPWORK_DEBUG, where it is
    shown. `language`: of the text, as Pygments calls it."""

    section: str
    title: str
    text: str
    level: int
    language: str = "text"


def stage_texts(stage: str, value: Any) -> Iterator[StageText]:
    """What is to be shown of `value`, which the pipeline hands to its observer after `stage`."""
    name, backward = stage.removesuffix(" backward"), " backward" * stage.endswith(" backward")
    of_pass = " of the backward pass" if backward else ""
    if name == "capture" and value.graph is not None:
        yield StageText("graph", "graph, as captured", graph_text(value.graph), 3)
    elif name == "prepare":
        section = "backward" if backward else "functional"
        yield StageText(section, f"graph{of_pass}, pure and simplified", graph_text(value.graph), 3)
    elif name == "lower":
        yield StageText(f"loops{backward}", f"one loop nest an operator{of_pass}", lowered_text(value), 4)
    elif name == "schedule":
        yield StageText(f"kernels{backward}", f"fused kernels{of_pass}", kernels_text(value), 4)
        refused = text.fusions(facts.fusions(value))
        if refused:
            yield StageText(f"fusion{backward}", f"refused fusions{of_pass}", refused, 4)
    elif name == "generate":
        yield from generated_texts(value, backward)
    elif name == "host":
        yield StageText(f"host{backward}", f"host function{of_pass}", value, 5, "python")


def kernels_text(program: Program) -> str:
    """The program's kernels, each under what it moves and the lines that it computes."""
    pairs = zip(facts.kernels(program), program.kernels)
    return "\n\n".join(f"{text.kernel_heading(each)}\n{kernel_text(kernel)}" for each, kernel in pairs)


def generated_texts(native: NativeCode, backward: str = "") -> Iterator[StageText]:
    """The code that back ends generated."""
    of_pass = " of the backward pass" if backward else ""
    if native.kernels:
        kernels = "\n\n".join(map(_device_kernel, native.kernels))
        yield StageText(f"triton{backward}", f"Triton kernels{of_pass}", kernels, 5, "python")
    if native.source:
        yield StageText(f"llvm{backward}", f"LLVM IR{of_pass}", native.source, 5, "llvm")


def _device_kernel(kernel: DeviceKernel) -> str:
    constants = "".join(f", {name}={value}" for name, value in kernel.constants)
    launch = f"grid ({', '.join(map(str, kernel.grid))}), {kernel.num_warps} warps{constants}"
    sizes = f"{kernel.shared_bytes} bytes of shared memory, {len(kernel.binary)} bytes of {kernel.arch} code"
    return f"# {launch}\n# {sizes}\n{kernel.source}"


def graph_text(graph: Any) -> str:
    """One line per node, in the graph's order, with type and source line; then the graphs that nodes run."""
    lines = []
    bodies: dict[str, Body] = {}
    for node in graph.nodes:
        bodies.update({each: each for each in bodies_in(node.args)})
        if node.op == "placeholder":
            lines.append(f"{node.name}: {type_text(node)}")
        elif node.op == "output":
            lines.append(f"return {node.args[0]}")
        else:
            named = "".join(f", {name}={value}" for name, value in node.kwargs.items())
            arguments = ", ".join(str(argument) for argument in node.args) + named
            lines.append(f"{node.name}: {type_text(node)} = {node.target}({arguments}){location_comment(node)}")
    for digest, body in bodies.items():
        lines += ["", f"body {digest}", *(f"    {line}" if line else "" for line in graph_text(body.graph).split("\n"))]
    return "\n".join(lines)


def type_text(node: Node) -> str:
    value = node.meta.get("val")
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(short(each) for each in value) + ")"
    return "?" if value is None else short(value)


def location_comment(node: Node) -> str:
    location = node.meta.get("location")
    return f"    # {location.file}:{location.line}" if location is not None and location.file else ""
