"""The device of a program, and constants where its kernels can read them.

    %full = full([], 0.125, device=cpu)                  %full_1 = full([], 0.125, device=cuda:0)
    %mul = mul(%x, %full)               # x on cuda ->   %mul = mul(%x, %full_1)
    %range = arange(8, device=cpu)                       %range_1 = arange(8, device=cuda:0)
    %moved = _to_copy(%range, device=cuda:0)             %moved = _to_copy(%range_1, device=cuda:0)      (a no-op)

Kernels and planned memory of a program are on one device; what lives elsewhere is touched by calls of ATen alone. A
program that touches one CUDA device at all is a CUDA program.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.fx
from torch.fx import Node

from lampwork import _torch
from lampwork.backends import BACKENDS, backend_of
from lampwork.errors import Diagnostic, GraphBreak
from lampwork.fakes.fake import Fake
from lampwork.fakes.operators import operator
from lampwork.graph.build import emit, is_random
from lampwork.ir.region import FunctionalGraph

aten = torch.ops.aten

#: Operators that make a tensor of numbers; the same ones on every device.
_FACTORIES = {
    aten.full.default, aten.zeros.default, aten.ones.default, aten.empty.memory_format, aten.scalar_tensor.default,
    aten.arange.default, aten.arange.start, aten.arange.start_step, aten.eye.default, aten.eye.m,
}  # fmt: skip

#: Constants go through these too, beside the pointwise operators and views.
_REARRANGE = {
    aten._to_copy.default, aten.clone.default, aten.tril.default, aten.triu.default, aten.cat.default,
    aten.flip.default,
}  # fmt: skip

#: Operators that take index or scalar tensors from the CPU, beside the pointwise ones.
_TAKE_FROM_CPU = {
    aten.index.Tensor, aten._unsafe_index.Tensor, aten.index_put.default, aten._unsafe_index_put.default,
    aten.fill.Tensor, aten.copy.default, aten._to_copy.default, aten.masked_fill.Tensor, aten.index_fill.int_Tensor,
    aten.rsub.Tensor,
}  # fmt: skip


def program_device(graph: torch.fx.Graph) -> str:
    """The device of `graph`'s program: "cpu", or the other device that some of its tensors are on.

    Raises `GraphBreak` for tensors on several such devices and on devices without a back end.
    """
    found: set[torch.device] = set()
    for node in graph.nodes:
        for value in _tensors(node.meta.get("val")):
            device = value.device
            if device.type == "meta":
                continue
            backend = BACKENDS.get(device.type)
            if backend is not None:
                if not backend.is_host:
                    found.add(device)
            else:
                raise GraphBreak(Diagnostic(
                    "no-back-end", f"a tensor is on device {device}, which no back end of Lampwork compiles for",
                    node.meta["location"], f"Supported devices: {', '.join(sorted(BACKENDS))}.",
                ))  # fmt: skip
            if len(found) > 1:
                names = " and ".join(sorted(map(str, found)))
                raise GraphBreak(Diagnostic(
                    "several-devices", f"one program uses {names}", node.meta["location"],
                    "Compile the part on each device by itself.",
                ))  # fmt: skip
    return str(found.pop()) if found else "cpu"


def _tensors(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)


def place_constants(functional: FunctionalGraph) -> FunctionalGraph:
    """`functional` with CPU tensors that kernels of its device want brought there.

    Constants computed on the CPU are computed on the device instead, where something there wants them; other scalars
    (and indices) on the CPU are copied there once. Exact but for rounding of floating-point functions. What stays on
    the CPU is what the program asked for there.
    """
    if not backend_of(functional.device).is_host:
        placing = _Placing(functional.graph, torch.device(functional.device))
        for node in list(functional.graph.nodes):
            if node.op == "call_function" and _torch.is_operator(node.target):
                placing.operands(node)
    return functional


class _Placing:
    def __init__(self, graph: torch.fx.Graph, device: torch.device) -> None:
        self.graph = graph
        self.device = device
        self.made: dict[Node, Node | None] = {}
        self.copies: dict[Node, Node] = {}

    def operands(self, node: Node) -> None:
        """Replaces operands of `node`, if it computes on the device."""
        if not any(value.device == self.device for value in _tensors(node.meta["val"])):
            return
        if torch.Tag.pointwise not in node.target.tags and node.target not in _TAKE_FROM_CPU:
            return
        for operand in node.all_input_nodes:
            value = operand.meta["val"]
            if not isinstance(value, Fake) or not value.is_cpu:
                continue
            new = self.moved(operand)
            if new is None and node.target not in (aten._to_copy.default, aten.copy.default):
                new = self.copied(operand)
            if new is not None:
                new.meta["of_cpu"] = True  # kernels for a GPU take it in the type that they compute in
                node.replace_input_with(operand, new)

    def copied(self, node: Node) -> Node:
        if node not in self.copies:
            after = node
            while after.next.op == "placeholder":
                after = after.next
            with self.graph.inserting_after(after):
                options = {"device": self.device, "non_blocking": True}  # the CPU's memory is not pinned: no race
                self.copies[node] = emit(self.graph, aten._to_copy.default, (node,), options, node)
        return self.copies[node]

    def moved(self, node: Node) -> Node | None:
        """The constant `node` computes, computed on the device; None if it is no constant."""
        if node not in self.made:
            self.made[node] = None  # no cycles in a graph; this is for the early returns
            self.made[node] = self._moved(node)
        return self.made[node]

    def _moved(self, node: Node) -> Node | None:
        value = node.meta["val"]
        if not isinstance(value, Fake) or not value.is_cpu:
            return None
        if node.op == "get_attr":
            with self.graph.inserting_after(node):
                new = self.graph.create_node("get_attr", f"{node.name}_{self.device.type}")
            there = _torch.tensor_without_memory(Fake, tuple(value.size()), value.stride(), value.dtype, self.device)
            new.meta = {**node.meta, "val": there}
            return new
        if node.op != "call_function" or not _torch.is_operator(node.target) or is_random(node):
            return None
        target: Any = node.target
        sources = node.all_input_nodes
        if target in _FACTORIES:
            kwargs = {**node.kwargs, "device": self.device}
        elif target in _REARRANGE or operator(target).kind == "view" or torch.Tag.pointwise in target.tags:
            kwargs = {key: each for key, each in node.kwargs.items() if key != "device"}
        else:
            return None
        replaced = {source: self.moved(source) for source in sources}
        if any(each is None for each in replaced.values()):
            return None
        with self.graph.inserting_after(node):
            args = torch.fx.map_arg(node.args, lambda source: replaced[source])
            kwargs = torch.fx.map_arg(kwargs, lambda source: replaced[source])
            return emit(self.graph, target, args, kwargs, node)
