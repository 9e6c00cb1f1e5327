"""The backward half of a region once more, for inputs in other layouts than those it was recorded for.

    relaid_backward(half, [Laid((2, 3), (3, 1), ...), Laid((2, 3), (0, 0), ...)], "cpu")    a sum's tangent is expanded

Eager hands a tangent on as it is laid out, and what it calls may add up in another order then. So under
`numerics="eager"` a program is compiled for each combination of layouts that arrives (`runtime/autograd/relaid.py`).
Sizes are numbers.

Guarantees: values have the strides that eager gives them, for inputs laid out so. Raises `CompileError` where the half
places elements in memory by number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx
from torch.fx import Node

from lampwork import _torch
from lampwork.errors import CompileError
from lampwork.fakes.fake import Fake
from lampwork.fakes.strides import is_dense, suggests_channels_last
from lampwork.graph.build import emit, place
from lampwork.ir.record import record
from lampwork.ir.region import AliasOfInput, FromGraph, FunctionalGraph
from lampwork.ir.replay import Call, EagerBackward, Expression, Gradient, Value
from lampwork.ir.size import evaluate

aten = torch.ops.aten


@record
class Laid:
    """A tensor among the inputs."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device


def relaid_backward(
    half: EagerBackward, inputs: Sequence[Laid | int], expected: Sequence[Laid | int], device: str
) -> FunctionalGraph:
    """The graph of `half` for these inputs, which was recorded for those that were `expected`."""
    with torch.no_grad(), _torch.without_autocast():
        return _Relaid(half, inputs, device).run(_Relaid(half, expected, device).values())


class _Relaid:
    def __init__(self, half: EagerBackward, inputs: Sequence[Laid | int], device: str) -> None:
        self.half, self.inputs, self.device = half, inputs, device
        self.graph = torch.fx.Graph()
        self.sizes = {name: self.size(index, dimension) for name, index, dimension in half.symbols}

    def size(self, index: int, dimension: int | None) -> int:
        given = self.inputs[index]
        if isinstance(given, Laid):
            assert dimension is not None
            return given.shape[dimension]
        return given

    def values(self) -> list[Any]:
        """The node of each value."""
        values: list[Any] = [self.placeholder(each) for each in self.inputs]
        numbers = {index: each for index, each in enumerate(self.inputs) if not isinstance(each, Laid)}
        self.numbers = {values[index]: each for index, each in numbers.items()}
        values += [self.literal(*each) for each in self.half.literals]
        for call in self.half.calls:
            values.append(self.call(call, values))
        return values

    def run(self, recorded: Sequence[Node]) -> FunctionalGraph:
        """`recorded`: the values as they were laid out when the half was recorded."""
        values = self.values()
        outputs: list[Node] = []
        results: list[AliasOfInput | FromGraph] = []
        made: dict[Gradient, AliasOfInput | FromGraph] = {}
        for gradient in self.half.results:
            key = Gradient(gradient.index, _hashable(gradient.view), gradient.dtype, gradient.conjugate)
            if key not in made:
                if gradient.dtype is not None:
                    raise CompileError("relaid", "a gradient is a part of another's memory")
                if gradient.index < len(self.inputs) and gradient.view is None:
                    made[key] = AliasOfInput(gradient.index, conjugate=gradient.conjugate)
                else:
                    made[key] = FromGraph(len(outputs), conjugate=gradient.conjugate)
                    outputs.append(self.part(values[gradient.index], recorded[gradient.index], gradient.view))
            results.append(made[key])
        self.graph.output(tuple(outputs))
        return FunctionalGraph(self.graph, tuple(results), device=self.device)

    def part(self, value: Node, recorded: Node, view: Any) -> Node:
        """What `view` is of `value`: it was written down as a place in the memory of `recorded`."""
        if view is None:
            return value
        shape, strides, offset = self.argument([list(view[0]), list(view[1]), view[2]], [])
        was, now = recorded.meta["val"], value.meta["val"]
        if was.stride() != now.stride():  # the gradient's own strides are seen to when it is handed on
            if not is_dense(was.size(), was.stride()):
                raise CompileError("relaid", "a gradient is a part of memory with gaps")
            options = {"dtype": was.dtype, "layout": torch.strided, "device": was.device, "pin_memory": False}
            memory = emit(self.graph, aten.empty_strided.default, (list(was.size()), list(was.stride())), options)
            value = emit(self.graph, aten.copy.default, (memory, value))
        return emit(self.graph, aten.as_strided.default, (value, shape, strides, offset))

    def emit_view(self, value: Node, shape: Any) -> Node:
        """`value.reshape(shape)`."""
        try:
            return emit(self.graph, aten.view.default, (value, shape))
        except RuntimeError:
            options = {"memory_format": torch.contiguous_format}
            dense = emit(self.graph, aten.clone.default, (value,), options)
            return emit(self.graph, aten._unsafe_view.default, (dense, shape))

    def placeholder(self, given: Laid | int) -> Node:
        node = self.graph.create_node("placeholder", "given" if isinstance(given, Laid) else "size")
        node.meta["val"] = given
        if isinstance(given, Laid):
            node.meta["val"] = _torch.tensor_without_memory(Fake, given.shape, given.strides, given.dtype, given.device)
        return node

    def literal(self, dtype: str, shape: tuple[int, ...], data: bytes) -> Node:
        tensor = _torch.tensor_constant(dtype, shape, data)
        fake = _torch.tensor_without_memory(Fake, tuple(shape), tensor.stride(), tensor.dtype, tensor.device)
        return place(self.graph, _torch.tensor_constant, (dtype, shape, data), {}, fake, None)

    def call(self, call: Call, values: list[Any]) -> Node:
        args = tuple(self.argument(each, values) for each in call.args)
        if call.item is not None:
            return place(self.graph, _torch.getitem, (args[0], call.item), {}, args[0].meta["val"][call.item], None)
        kwargs = {name: self.argument(each, values) for name, each in call.kwargs}
        op = _torch.overload(call.op)
        if op is aten.as_strided.default:
            raise CompileError("relaid", "what is handed in is decomposed by its place in memory")
        if op in (aten.view.default, aten._unsafe_view.default):  # a reshape, as it could be recorded
            return self.emit_view(*args)
        if op in _DENSE:
            args = self.dense(op, args)
        return emit(self.graph, op, args, kwargs)

    def dense(self, op: Any, args: tuple) -> tuple:
        """The arguments, of which eager's derivatives make the gradient contiguous before they call `op`."""
        place, like = _DENSE[op]
        given = args[place].meta["val"]
        wanted = torch.contiguous_format
        if like is not None and (op is not aten.native_group_norm_backward.default or given.device.type == "cpu"):
            last = torch.channels_last if given.dim() == 4 else torch.channels_last_3d
            wanted = last if suggests_channels_last(args[like].meta["val"]) else wanted
        if given.is_contiguous(memory_format=wanted):
            return args
        made = emit(self.graph, aten.clone.default, (args[place],), {"memory_format": wanted})
        return (*args[:place], made, *args[place + 1 :])

    def argument(self, given: Any, values: list[Any]) -> Any:
        if isinstance(given, Value):
            value = values[given.index]
            return self.numbers.get(value, value)
        if isinstance(given, Expression):
            return evaluate(given.size, self.sizes)
        if isinstance(given, list):
            return [self.argument(each, values) for each in given]
        return given


#: Which argument derivatives.yaml makes contiguous: in the format that is suggested by which other one.
_DENSE: dict[Any, tuple[int, int | None]] = {
    aten.native_group_norm_backward.default: (0, 1),
    aten.cudnn_batch_norm_backward.default: (1, 0),
    aten._cdist_backward.default: (0, None),
    aten._weight_norm_interface_backward.default: (0, None),
    aten.view_as_complex.default: (0, None),
}


def _hashable(view: Any) -> Any:
    return None if view is None else (tuple(view[0]), tuple(view[1]), view[2])
