"""Counters: integers on the CPU that a program reads after its own `counter.add_(1)`.

    self.num_batches_tracked.add_(1)
    share = 1.0 / float(self.num_batches_tracked)      guarded: the counter is not -1

What a counter holds then follows from what it held before the call, which a guard can ask.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.outside import facts
from lampwork.capture.record.fake import Fake

aten = torch.ops.aten
#: Operators that pass a number of one element on.
_PASS_ON = frozenset({
    aten.detach.default, aten.alias.default, aten._to_copy.default, aten.clone.default, aten.view.default,
    aten.reshape.default, aten._unsafe_view.default, aten.squeeze.default,
})  # fmt: skip


def is_nonzero(world: Any, tensor: Fake | None) -> bool:
    """Whether the number in `tensor`, which was taken out of a counter, is not zero; guarded."""
    node: Any = tensor.node if type(tensor) is Fake else None
    while type(node) is torch.fx.Node and node.op == "call_function" and node.target in _PASS_ON:
        value, node = node.meta["val"], node.args[0]
        if value.numel() != 1:
            return False
    if type(node) is not torch.fx.Node or node.op != "placeholder":
        return False
    counter = node.meta["val"]
    if type(counter) is not Fake or counter.dtype is not torch.int64 or counter.device.type != "cpu":
        return False
    origin, steps = world.loader.origin(counter), _steps(world.recorder, counter)
    if origin is None or steps is None or not facts.has_one_element(origin):
        return False
    value = facts.element(world.recorder, origin)
    held = world.backed_numbers.at(origin.source, "item", value)
    return world.backed_numbers.compare(operator.ne, held, -steps)


def _steps(recorder: Any, counter: Fake) -> int | None:
    """How much the program has added to a counter; None where it wrote to it otherwise."""
    key = _torch.storage_key(counter)
    if key not in recorder.written:
        return 0
    total = 0
    for node in recorder.graph.nodes:
        if node.op != "call_function" or not _torch.is_operator(node.target) or not node.target._schema.is_mutable:
            continue
        if not any(_torch.storage_key(each.meta["val"]) == key for each in node.all_input_nodes if _is_fake(each)):
            continue
        if node.target is not aten.add_.Tensor or type(node.args[1]) is not int or node.kwargs:
            return None
        total += node.args[1]
    return total


def _is_fake(node: torch.fx.Node) -> bool:
    return isinstance(node.meta.get("val"), Fake)
