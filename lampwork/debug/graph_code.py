"""A graph of ATen operators as Python that runs: `def graph(x, self_weight): ...`.

def graph(
    x,  # float32[4, 8]
    self_weight,  # float32[8, 8]
):
    mm = torch.ops.aten.mm.default(x, self_weight)  # float32[4, 8]  model.py:12
    return (mm,)
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
import torch.fx
from torch.fx import Node

from lampwork import _torch
from lampwork.debug.stages import type_text
from lampwork.fakes.symbolic import found_symbol, size_of
from lampwork.ir.size import Symbol

#: Literal tensors with more elements are not written out.
MOST_ELEMENTS = 4096


class NotWritten(Exception):
    """The graph holds something that is no Python text."""


def graph_code(graph: torch.fx.Graph, names: Sequence[str] = (), outputs: int | None = None) -> str:
    """The text. `names`: of inputs, in order. `outputs`: the graph returns so many of the first, and computes no more
    than these need, and what is written in place. Raises `NotWritten`."""
    return "\n".join(_Writer(graph, names, outputs).lines()) + "\n"


def libraries(graph: torch.fx.Graph) -> list[str]:
    """Namespaces of the graph's operators that neither PyTorch nor Lampwork defines."""
    known = ("aten", "prims", "prim", "mkldnn", "quantized", "lampwork", "profiler", "inductor", "_c10d_functional")
    found = {each.target.namespace for each in graph.nodes if is_operator(each.target)}
    return sorted(found - set(known))


class _Writer:
    def __init__(self, graph: torch.fx.Graph, names: Sequence[str], outputs: int | None) -> None:
        self.graph = graph
        self.inputs = [node for node in graph.nodes if node.op == "placeholder"]
        self.results = next(node for node in graph.nodes if node.op == "output").args[0]
        if outputs is not None:
            self.inputs, self.results = self.inputs[: len(names)], self.results[:outputs]
        self.live = self._live(outputs is not None)
        used = {node.name for node in self.live if node.op != "placeholder"} | {"torch", "lampwork", "operator"}
        self.names: dict[Node, str] = {node: node.name for node in self.live}
        for node, wanted in zip(self.inputs, names):
            self.names[node] = unique(wanted, used)
        self.known_sizes: set[str] = set()

    def _live(self, pruned: bool) -> Collection[Node]:
        """The nodes that are written; with `pruned` those that results need, or that write in place."""
        if not pruned:
            return list(self.graph.nodes)
        outside = {node for node in self.graph.nodes if node.op == "placeholder" and node not in self.inputs}
        needed = {node for node in self.results if isinstance(node, Node)}
        for node in self.graph.nodes:  # what depends on tangents, which are no inputs here
            if node.op == "call_function" and any(each in outside for each in node.all_input_nodes):
                outside.add(node)
        for node in reversed(self.graph.nodes):
            if node.op == "output" or node in outside:
                continue
            if node in needed or _writes(node):
                needed.add(node)
                needed.update(node.all_input_nodes)
        return [node for node in self.graph.nodes if node in needed or node in self.inputs]

    # Lines ----------------------------------------------------------------------------------------------------------

    def lines(self) -> Iterator[str]:
        yield "def graph("
        for node in self.inputs:
            yield f"    {self.names[node]},  # {type_text(node)}"
        yield "):"
        for node in self.inputs:
            yield from self.sizes(node)
        for node in self.live:
            if node.op == "get_attr":
                yield f"    {self.names[node]} = {constant_code(node.meta['constant'])}"
            elif node.op == "call_function":
                location = node.meta.get("location")
                where = f"  {location.file}:{location.line}" if location is not None and location.file else ""
                yield f"    {self.names[node]} = {self.call(node)}  # {type_text(node)}{where}"
                yield from self.sizes(node)
        yield f"    return {self.value(tuple(self.results))}"

    def sizes(self, node: Node) -> Iterator[str]:
        """Lines that name the sizes which vary, where a tensor first has one."""
        fake = node.meta.get("val")
        if isinstance(fake, torch.SymInt) and node.op == "placeholder":
            yield from self.bind(fake, self.names[node])
        if not isinstance(fake, torch.Tensor):
            return
        for axis, size in enumerate(fake.size()):
            found = found_symbol(size)
            if found is not None and found not in self.known_sizes:
                self.known_sizes.add(found)
                yield f"    {found} = {self.names[node]}.shape[{axis}]"
            yield from self.bind(size, f"{self.names[node]}.shape[{axis}]")
        if node.op == "placeholder":
            for axis, step in enumerate(fake.stride()):
                yield from self.bind(step, f"{self.names[node]}.stride({axis})")

    def bind(self, size: Any, text: str) -> Iterator[str]:
        value = size_of(size) if isinstance(size, torch.SymInt) else size
        if isinstance(value, Symbol) and value.name not in self.known_sizes:
            self.known_sizes.add(value.name)
            yield f"    {value.name} = {text}"

    def call(self, node: Node) -> str:
        target = node.target
        arguments = [self.value(each) for each in node.args]
        if target is _torch.getitem:
            return f"{arguments[0]}[{arguments[1]}]"
        arguments += [f"{key}={self.value(each)}" for key, each in node.kwargs.items()]
        if is_operator(target):
            return f"torch.ops.{target}({', '.join(arguments)})"
        if target is _torch.tensor_constant:
            return f"lampwork._torch.tensor_constant({', '.join(arguments)})"
        raise NotWritten(f"{target} is no operator")

    def value(self, value: Any) -> str:
        if isinstance(value, Node):
            return self.names[value]
        if isinstance(value, torch.SymInt):
            return str(size_of(value))
        if isinstance(value, (list, tuple)):
            inner = ", ".join(map(self.value, value))
            return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
        if isinstance(value, float) and not math.isfinite(value):
            return f'float("{value}")'
        if value is None or type(value) in (bool, int, float, complex, str, bytes):
            return repr(value)
        if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
            return str(value)
        if isinstance(value, torch.device):
            return f'torch.device("{value}")'
        raise NotWritten(f"{value!r} is no plain data")


def is_operator(target: object) -> bool:
    return isinstance(target, type(torch.ops.aten.add.Tensor))


def _writes(node: Node) -> bool:
    return is_operator(node.target) and node.target._schema.is_mutable


def unique(wanted: str, used: set[str]) -> str:
    """`wanted` as an identifier that is not `used`, where it is noted."""
    base = re.sub(r"\W+", "_", wanted).strip("_") or "value"
    base = f"_{base}" if base[0].isdigit() else base
    name, number = base, 1
    while name in used or name in ("None", "True", "False", "lambda", "return", "in", "is", "def", "class"):
        number += 1
        name = f"{base}_{number}"
    used.add(name)
    return name


def constant_code(tensor: torch.Tensor) -> str:
    if tensor.numel() > MOST_ELEMENTS:
        raise NotWritten(f"a literal tensor of {tensor.numel()} elements")
    data = bytes(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).tolist())
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"lampwork._torch.tensor_constant({dtype!r}, {tuple(tensor.shape)}, {data!r})"
