"""Runs graphs of ATen operators on real tensors, sizes that vary included; in float64 on request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx
from torch.fx import Node
from torch.fx.node import map_arg

from lampwork import _torch
from lampwork.debug.interpret.inputs import copies
from lampwork.fakes.symbolic import found_symbol, size_of
from lampwork.graph.views import written_part
from lampwork.ir.region import AliasOfInput, FunctionalGraph
from lampwork.ir.size import Size, Symbol, evaluate, linear_terms
from lampwork.runtime.launch.prepacked import derive

_HALVES = (torch.float16, torch.bfloat16, torch.float32)


class NotWide(Exception):
    """The graph means something else in float64."""


def bind(size: Any, number: int, sizes: dict[str, int]) -> None:
    """Notes the value of the symbol that `size` is, where it is one symbol times a number plus a number."""
    constant, terms = linear_terms(size_of(size))
    if len(terms) == 1 and isinstance(terms[0][1], Symbol):
        sizes.setdefault(terms[0][1].name, (number - constant) // terms[0][0])


class GraphRun:
    """One run of a graph. `sizes`: the symbols' values, as far as they are known by now."""

    def __init__(self, graph: torch.fx.Graph, inputs: Sequence[Any], wide: bool = False) -> None:
        self.graph, self.inputs, self.wide = graph, list(inputs), wide
        self.sizes: dict[str, int] = {}
        self.values: dict[Node, Any] = {}
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        for node, value in zip(placeholders, self.inputs, strict=True):
            # `as_strided_scatter` looks at requires_grad even below autograd.
            self.values[node] = value.detach() if isinstance(value, torch.Tensor) and value.requires_grad else value
            fake = node.meta.get("val")
            if isinstance(value, torch.Tensor) and isinstance(fake, torch.Tensor):
                for size, number in zip((*fake.size(), *fake.stride()), (*value.size(), *value.stride())):
                    bind(size, number, self.sizes)
            elif isinstance(fake, torch.SymInt):
                bind(fake, value, self.sizes)

    def number(self, size: Any) -> int:
        return evaluate(size_of(size), self.sizes)

    def load(self, argument: object) -> Any:
        if isinstance(argument, Node):
            return self.values[argument]
        if isinstance(argument, (list, tuple)):
            return type(argument)(self.load(each) for each in argument)
        if isinstance(argument, torch.SymInt):
            return self.number(argument)
        if self.wide and isinstance(argument, torch.dtype) and argument in _HALVES:
            return torch.float64
        return argument

    def run(self) -> list[Any]:
        """The graph's outputs, in order. No autograd, no autocast."""
        with torch.no_grad(), _torch.below_autograd():
            for node in self.graph.nodes:
                if node.op == "output":
                    return [self.load(each) for each in node.args[0]]
                self.step(node)
        raise ValueError("the graph has no output")

    def run_without(self, missing: Sequence[Node]) -> None:
        """Runs all that needs none of the placeholders `missing`: sizes that contents decide are known after it."""
        left_out = set(missing)
        with torch.no_grad(), _torch.below_autograd():
            for node in self.graph.nodes:
                if left_out.isdisjoint(node.all_input_nodes):
                    self.step(node)
                else:
                    left_out.add(node)

    def step(self, node: Node) -> None:
        if node.op == "get_attr":
            made = node.meta["constant"].to(node.meta["val"].device, copy=True)
            self.values[node] = made.double() if self.wide and made.is_floating_point() else made
        elif node.op == "call_function":
            self.values[node] = self.call(node)

    def call(self, node: Node) -> Any:
        if self.wide and node.target in _BITS:
            raise NotWide(str(node.target))
        result = node.target(*self.load(node.args), **{key: self.load(each) for key, each in node.kwargs.items()})
        if node.target in _KEEP_OFFSET:
            result = _at_start(result)
        fakes: Any = node.meta.get("val")
        pairs = zip(fakes, result) if isinstance(result, (list, tuple)) else [(fakes, result)]
        for fake, value in pairs:
            if isinstance(value, torch.Tensor) and isinstance(fake, torch.Tensor):
                for size, number in zip(fake.size(), value.size()):
                    symbol = found_symbol(size)
                    if symbol is not None:
                        self.sizes.setdefault(symbol, number)
                        bind(size, number, self.sizes)
        return result


#: Their results lie as deep in a storage of their own as the argument did in its; a pure graph says they start one.
_KEEP_OFFSET = {
    torch.ops.aten.slice_scatter.default, torch.ops.aten.select_scatter.default,
    torch.ops.aten.diagonal_scatter.default, torch.ops.aten.as_strided_scatter.default, torch.ops.aten.copy.default,
}  # fmt: skip


def _at_start(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.storage_offset():
        return tensor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


#: What looks at the bits of floats.
_BITS = {torch.ops.aten.view.dtype}


def run_recorded(graph: torch.fx.Graph, inputs: list[object], wide: bool = False) -> list[object]:
    """The outputs of a graph as it was recorded: operators in place write to `inputs`."""
    return GraphRun(graph, inputs, wide).run()


def run_functional(
    functional: FunctionalGraph, inputs: list[Any], wide: bool = False, finished: bool = True
) -> list[object]:
    """The results of a pure graph, after its writes to `inputs`, and its numbers. `finished`: no pass is to come, the
    last of which sees to it that outputs do not lie in memory that is written."""
    if wide and (functional.derived or any(result.dtype is not None for result in functional.results)):
        raise NotWide("memory of other types")
    made = prepacked(functional.derived, inputs)
    run = GraphRun(functional.graph, [*inputs, *made], wide)
    outputs = run.run()
    if not finished:
        outputs = [copies([each])[0] if isinstance(each, torch.Tensor) else each for each in outputs]
    others = []
    for table in functional.copies:
        for row in table[1:]:
            swapped = list(inputs)
            for place, other in zip(table[0], row, strict=True):
                swapped[place] = inputs[other]
            found = GraphRun(functional.graph, [*swapped, *made], wide).run()
            here = dict(zip(table[0], row))
            others += [(here[index], found[source].clone()) for index, source in functional.writes if index in here]
    with torch.no_grad(), _torch.below_autograd():
        # A value that is written may be a view of an input that another write changes.
        staged = [(index, outputs[source].clone()) for index, source in functional.writes]
        rows = {index: run.number(row) for index, row in functional.rows}
        for index, value in (*staged, *others):
            written_part(inputs[index], value, rows.get(index)).copy_(value)
        results = [result_of(each, inputs, outputs, run) for each in functional.results]
    return results + [run.number(number) for number in functional.numbers]


def prepacked(recipes: Sequence[tuple], inputs: Sequence[object]) -> list[object]:
    """The derived inputs of a graph: what stands after its own."""
    return [derive(recipe, inputs) for recipe in recipes]


def result_of(result: Any, inputs: list[Any], outputs: list[Any], run: GraphRun) -> Any:
    base = inputs[result.input] if isinstance(result, AliasOfInput) else outputs[result.index]
    if result.view is None:
        return base.conj() if result.conjugate else base
    numbers = lambda values: [run.number(each) for each in values]
    shape, strides, offset = result.view
    dtype = getattr(torch, result.dtype) if result.dtype else base.dtype
    view = torch.empty(0, dtype=dtype, device=base.device)
    start = base.storage_offset() * base.element_size() // view.element_size()
    view.set_(base.untyped_storage(), start + run.number(offset), numbers(shape), numbers(strides))
    return view.conj() if result.conjugate else view


def snapshot(graph: torch.fx.Graph) -> torch.fx.Graph:
    """A copy that later passes do not edit."""
    made = torch.fx.Graph()
    copied: dict[Node, Node] = {}
    for node in graph.nodes:
        if node.op == "call_function":  # of which `node_copy` warns where sizes vary
            args, kwargs = map_arg((node.args, node.kwargs), copied.__getitem__)
            copied[node] = _torch.append_node(made, node.name, node.target, args, kwargs)
        else:
            copied[node] = made.node_copy(node, copied.__getitem__)
        copied[node].meta = dict(node.meta)
    return made


def concrete(size: object, sizes: dict[str, int]) -> int:
    found: Size = size_of(size)
    return evaluate(found, sizes)
