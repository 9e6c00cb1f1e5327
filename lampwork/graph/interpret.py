"""Plain interpreters for graphs: one ATen call per node. Slow and obvious; for tests and for bisecting by stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from torch.fx import Node

from lampwork import _torch
from lampwork.graph.views import written_part
from lampwork.ir.region import AliasOfInput, FunctionalGraph


def interpret(graph: torch.fx.Graph, inputs: Sequence[object]) -> tuple[Any, ...]:
    """The outputs of `graph` on real tensors; in-place operators write to `inputs`. No autograd, no autocast."""
    values: dict[Node, Any] = {}
    remaining = iter(inputs)

    def load(argument: object) -> Any:
        if isinstance(argument, Node):
            return values[argument]
        if isinstance(argument, (list, tuple)):
            return type(argument)(load(each) for each in argument)
        return argument

    with torch.no_grad(), _torch.below_autograd():
        for node in graph.nodes:
            if node.op == "placeholder":
                value = next(remaining)
                # `as_strided_scatter` looks at requires_grad even below autograd.
                values[node] = value.detach() if isinstance(value, torch.Tensor) and value.requires_grad else value
            elif node.op == "get_attr":
                values[node] = node.meta["constant"].to(node.meta["val"].device, copy=True)
            elif node.op == "call_function":
                assert callable(node.target)
                result = node.target(*load(node.args), **{key: load(each) for key, each in node.kwargs.items()})
                values[node] = _at_start(result) if node.target in _KEEP_OFFSET else result
            elif node.op == "output":
                return tuple(load(node.args[0]))
    raise ValueError("the graph has no output")


#: Their results lie as deep in a storage of their own as the argument did in its; a pure graph says they start one.
_KEEP_OFFSET = {
    torch.ops.aten.slice_scatter.default, torch.ops.aten.select_scatter.default,
    torch.ops.aten.diagonal_scatter.default, torch.ops.aten.as_strided_scatter.default, torch.ops.aten.copy.default,
}  # fmt: skip


def _at_start(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.storage_offset():
        return tensor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def interpret_functional(
    functional: FunctionalGraph, inputs: Sequence[Any], derive: Callable[[tuple, Sequence[Any]], Any] | None = None
) -> tuple[Any, ...]:
    """The region's results on `inputs` (those of `Region.inputs`): runs the graph, then writes, then makes views.

    `derive(recipe, inputs)` makes the derived inputs: `lampwork.runtime.launch.prepacked.derive`.
    """
    arguments = list(inputs)
    if functional.derived:
        assert derive is not None
        arguments += [derive(recipe, inputs) for recipe in functional.derived]
    outputs = interpret(functional.graph, arguments)
    with torch.no_grad(), _torch.below_autograd():
        # A written value may still be a view of an input that another write changes.
        staged = [(index, outputs[source].clone()) for index, source in functional.writes]
        rows = dict(functional.rows)
        for index, value in staged:
            written_part(inputs[index], value, rows.get(index)).copy_(value)
        results = []
        for result in functional.results:
            base = inputs[result.input] if isinstance(result, AliasOfInput) else outputs[result.index]
            if result.view is None:
                results.append(base.conj() if result.conjugate else base)
                continue
            shape, strides, offset = result.view
            dtype = getattr(torch, result.dtype) if result.dtype else base.dtype
            view = torch.empty(0, dtype=dtype, device=base.device)
            start = base.storage_offset() * base.element_size() // view.element_size()
            view.set_(base.untyped_storage(), start + offset, shape, strides)
            results.append(view.conj() if result.conjugate else view)
    return tuple(results)
