"""Calls that are alike are recorded alike: an update of the hundredth parameter as that of the second.

    addcmul_(%v2, %g2, %g2, value=number)    ->    mul(%n, %g2), mul(.., %g2), add(%v2, ..), copy_(%v2, ..)
    addcmul_(%v3, %g3, %g3, value=number)    ->    the same nodes, without a look at rules, numbers and checks

What an elementwise operator records depends on the metadata of its tensors, on which of them are one tensor, and on the
numbers. The second such call (by then, what calls share is in the graph) leaves a template, which later ones follow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from lampwork import _torch
from lampwork.capture.values.scalar import Scalar
from lampwork.fakes.fake import Fake
from lampwork.fakes.numbers import NumberNode
from lampwork.fakes.operators import Operator, operator

if TYPE_CHECKING:
    from lampwork.capture.record.recording import Recording

#: What constants are known to be equal by.
_PLAIN = frozenset({int, bool, type(None), str, torch.dtype, torch.memory_format})


class Alike:
    """The templates of one recording."""

    def __init__(self, recorder: Recording) -> None:
        self.recorder = recorder
        #: By what a call is like; before there is one: _MET_ONCE, and _NONE where no template can say what it records.
        self._templates: dict[tuple, Template | str] = {}

    def call(self, op: Operator, args: tuple, kwargs: dict, plainly: Any) -> Any:
        """The result of `plainly(op, args, kwargs)`, with the same nodes recorded. `op` is elementwise, and no size of
        the recording is a symbol."""
        fakes: list[Fake] = []
        key = _key(op, args, kwargs, fakes)
        if key is None:
            return plainly(op, args, kwargs)
        templates = self._templates
        found = templates.get(key)
        if type(found) is Template:
            return found.follow(self.recorder, fakes)
        if found is None and len(templates) < _MOST:
            templates[key] = _MET_ONCE
        elif found is _MET_ONCE:
            root = self.recorder.graph._root
            named = [self.recorder.to_nodes(each) for each in fakes]
            before = root._prev
            result = plainly(op, args, kwargs)
            nodes = []
            node = root._prev
            while node is not before:
                nodes.append(node)
                node = node._prev
            templates[key] = _template(fakes, named, nodes[::-1], result) or _NONE
            return result
        return plainly(op, args, kwargs)


_MET_ONCE, _NONE = "met once", "none"
#: A recording of more kinds of calls than this is no loop over parameters.
_MOST = 4096


class Template:
    """The nodes of one call: of each the operator, its arguments (a value's number, or -1 and what it is), and the
    number of the value that it writes to, or the metadata of the one that it makes. Values are the call's tensors, then
    what was made. `result`: the number of the call's, -1 for None."""

    __slots__ = ("result", "steps")

    def __init__(self, steps: list[tuple], result: int) -> None:
        self.steps, self.result = steps, result

    def follow(self, recorder: Recording, fakes: list[Fake]) -> Any:
        values = fakes
        nodes = [recorder.to_nodes(each) for each in fakes]
        for op, arguments, kwargs, written, made in self.steps:
            args = tuple([nodes[number] if number >= 0 else what for number, what in arguments])
            if made is None:
                value = values[written]
                if recorder.write_hook is not None:
                    recorder.write_hook(op.base, value, (), {})
                recorder.note_written(value)
            else:
                value = _torch.tensor_without_memory(Fake, *made)
                values.append(value)
            recorder._record(op, args, kwargs, value)
            if made is not None:
                nodes.append(value.node)
        return values[self.result] if self.result >= 0 else None


def _key(op: Operator, args: tuple, kwargs: dict, fakes: list[Fake]) -> tuple | None:
    """Equal for calls that record the same; None where that cannot be told. Fills in the call's tensors."""
    made: list[Any] = [id(op), torch.get_default_dtype()]
    for each in args:
        kind = type(each)
        if kind is Fake:
            for number, other in enumerate(fakes):
                if other is each:
                    made.append(number)
                    break
            else:
                dtype = each.dtype
                if each.constant is not None or dtype.is_complex or each.is_neg():
                    return None
                fakes.append(each)
                made.append((dtype, each.size(), each.stride(), each.device))
        else:
            token = _token(each)
            if token is None:
                return None
            made.append(token)
    for name, each in kwargs.items():
        token = _token(each)
        if token is None:
            return None
        made.append((name, token))
    if not fakes:
        return None
    if op.kind == "inplace":
        # Counters are known to the host; tensors of one memory may overlap.
        if type(args[0]) is not Fake or args[0].numel() == 1:
            return None
        if len(fakes) > 1 and len({_torch.storage_key(each) for each in fakes}) < len(fakes):
            return None
    return tuple(made)


def _token(value: Any) -> Any:
    """A constant, or a number of the host by what it is computed as."""
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if kind is torch.SymFloat and type(value.node) is NumberNode:
        value = value.node.number
        kind = type(value)
        if kind is Scalar and value.value is not None:
            return Scalar, value.expression
    return (kind, value.hex()) if kind is float else None


def _template(fakes: list[Fake], named: list[Node], nodes: list[Node], result: Any) -> Template | None:
    """What `nodes` do, or None where a template cannot say it."""
    values: list[Any] = list(fakes)
    numbers = {node: number for number, node in enumerate(named)}
    steps = []
    for node in nodes:
        if node.op != "call_function" or not _torch.is_operator(node.target):
            return None
        op, value = operator(node.target), node.meta["val"]
        if any(isinstance(each, (list, tuple, dict)) for each in (*node.args, *node.kwargs.values())):
            return None
        if any(isinstance(each, Node) for each in node.kwargs.values()) or type(value) is not Fake:
            return None
        arguments = tuple([(numbers.get(each, -1), each) if type(each) is Node else (-1, each) for each in node.args])
        written, made = -1, None
        if op.kind == "inplace" and op.written == (0,) and op.returns_written == [True]:
            written = next((number for number, each in enumerate(values) if each is value), -1)
            if written < 0 or arguments[0][0] != written:
                return None
        elif op.kind == "functional" and not op.is_random and not any(each is value for each in values):
            made = tuple(value.size()), value.stride(), value.dtype, value.device
            if value.storage_offset() or value.requires_grad or value.constant is not None:
                return None
            numbers[node] = len(values)
            values.append(value)
        else:
            return None
        steps.append((op, arguments, dict(node.kwargs), written, made))
    if result is None:
        return Template(steps, -1)
    number = next((number for number, each in enumerate(values) if each is result), -1)
    return Template(steps, number) if number >= 0 else None
