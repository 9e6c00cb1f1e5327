"""How results that are views are made again above autograd: by the view operators that the program called.

    return x.expand(4, 3)[1:]       Call("aten::expand", x, [4, 3]), Call("aten::slice", that, 0, 1, ...)

One strided view of the base would have the same elements, and not always the same gradient: autograd's derivative of
`as_strided` divides what arrives at an element by how many elements of the base share its memory, that of `expand` does
not. Nor would gradients have eager's strides, or results eager's rules for writes to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from lampwork import _torch
from lampwork.capture.record.recorder import Recorder
from lampwork.fakes.fake import Fake
from lampwork.fakes.operators import operator
from lampwork.fakes.symbolic import size_of
from lampwork.ir.differentiation import Views
from lampwork.ir.replay import Call, Expression, Value
from lampwork.ir.size import Symbol, symbols


class _Unknown(Exception):
    """No chain of views that can be written down leads from the base to the result."""


class ResultViews:
    """Writes down chains of views. `outputs` of the differentiated function are the first values of the `Views`."""

    def __init__(self, recorder: Recorder, outputs: int) -> None:
        self.recorder = recorder
        self.outputs = outputs
        #: Graph inputs that are viewed, in the order of their values.
        self.inputs: list[int] = []
        self.calls: list[tuple[Any, Call]] = []
        self.numbers: dict[Node, tuple[str, int]] = {}
        #: The calls whose gradients eager adds after the region's own.
        self.late: list[int] = []
        #: The calls that came before the input required grad.
        self.early: list[int] = []
        self.symbols: dict[str, tuple[int, int | None]] = {}

    def find(self, fake: Fake, base: Fake, kind: str, index: int, late: bool = False) -> int | None:
        """The number of the call that makes `fake` of `base`, which is the "input" or "output" `index`; None where the
        views in between are not known. `late`: the gradient that reaches `base` through it comes after the region's."""
        if kind == "input" and base.lampwork_placeholder is not self.recorder.node_of(base):
            return None  # given another shape in place, which its caller sees before or after the views are made
        root = written_node(self.recorder.node_of(base))
        before = len(self.calls)
        known = dict(self.numbers)
        try:
            place = self.place(written_node(self.recorder.node_of(fake)), root, (kind, index))
        except _Unknown:
            del self.calls[before:]
            self.numbers = known
            return None
        if place[0] != "call":
            return None
        if late:
            self.late += range(before, len(self.calls))
        if kind == "input" and fake.is_leaf and fake.requires_grad and self.calls[place[1]][1].grad:
            self.early += range(before, len(self.calls))
        return place[1]

    def place(self, node: Node, root: Node, base: tuple[str, int]) -> tuple[str, int]:
        """Where the value of `node` is among the sources and calls, which are added to."""
        chain: list[Node] = []
        while node is not root and node not in self.numbers:
            if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
                raise _Unknown
            if not makes_view(node):
                raise _Unknown
            chain.append(node)
            node = node.args[0] if node.target is _torch.getitem else written_node(node.args[0])
        place = base if node is root else self.numbers[node]
        for each in reversed(chain):
            self.calls.append((place, self.call(each, base[0])))
            place = self.numbers[each] = ("call", len(self.calls) - 1)
        return place

    def call(self, node: Node, kind: str) -> Call:
        grad = bool(node.meta.get("grad_enabled", True))
        if node.target is _torch.getitem:
            return Call("", (), (), node.args[1], grad)
        op: Any = node.target
        name: str = op.name()
        if "replayed" in node.meta or not name.startswith("aten::"):
            raise _Unknown
        if name.startswith("aten::as_strided") and kind == "output" and (len(node.args) > 3 or node.kwargs):
            raise _Unknown  # counts from where memory begins, in which a result may lie elsewhere than eager's
        args = tuple(self.argument(each) for each in node.args[1:])
        return Call(name, args, tuple((key, self.argument(each)) for key, each in node.kwargs.items()), None, grad)

    def argument(self, value: Any) -> Any:
        if isinstance(value, torch.SymInt):
            size = size_of(value)
            if isinstance(size, int):
                return size
            for name in symbols(size):
                self.find_symbol(name)
            return Expression(size)
        if isinstance(value, (list, tuple)):
            return [self.argument(each) for each in value]
        if isinstance(value, (type(None), bool, int, torch.dtype)):
            return value
        raise _Unknown

    def find_symbol(self, name: str) -> None:
        """Notes where the host finds the size `name`. Raises `_Unknown` where contents decide it."""
        if name in self.symbols:
            return
        for index, value in enumerate(self.recorder.inputs):
            if isinstance(value, torch.SymInt):
                extents: Sequence[tuple[int | None, Any]] = ((None, value),)
            elif isinstance(value, Fake) and value.lampwork_placeholder is self.recorder.node_of(value):
                extents = tuple(enumerate(value.size()))
            else:
                continue
            for dimension, extent in extents:
                size = size_of(extent) if isinstance(extent, torch.SymInt) else None
                if isinstance(size, Symbol) and size.name == name:
                    self.symbols[name] = (index, dimension)
                    return
        raise _Unknown

    def finish(self) -> Views:
        """The `Views`. Numbers of calls in it are those that `find` gave."""
        inputs = sorted({place[1] for place, _ in self.calls if place[0] == "input"})
        calls = []
        for (kind, index), call in self.calls:
            if kind == "output":
                number = index
            elif kind == "input":
                number = self.outputs + inputs.index(index)
            else:
                number = self.outputs + len(inputs) + index
            calls.append(Call(call.op, (Value(number), *call.args), call.kwargs, call.item, call.grad))
        symbols = tuple((name, *where) for name, where in self.symbols.items())
        return Views(tuple(inputs), tuple(calls), symbols, tuple(self.late), tuple(self.early))


def makes_view(node: Node) -> bool:
    """Whether the value of a node is a view of its first argument, or one of the views that this is."""
    return node.target is _torch.getitem or (_torch.is_operator(node.target) and operator(node.target).kind == "view")


def written_node(node: Node) -> Node:
    """The node whose memory and metadata those of `node` are: operators that write return what they have written."""
    while node.op == "call_function" and _torch.is_operator(node.target):
        facts = operator(node.target)
        if facts.kind != "inplace" or not facts.written or type(facts.written[0]) is not int:
            break
        written = node.args[facts.written[0]] if facts.written[0] < len(node.args) else None
        if not isinstance(written, Node):
            break
        node = written
    return node
