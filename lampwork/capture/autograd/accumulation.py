"""Sums of gradients that arrive at one node: the engine adds in place where it owns the first.

    where(c, g, 0) + where(c, 0, g)     eager: the first is added to, and keeps its strides

With tensors of other classes, as fakes are, it makes a third tensor, whose strides may differ from both.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import getitem
from typing import TYPE_CHECKING, Any

import torch

from lampwork import _torch
from lampwork.fakes.fake import Fake
from lampwork.fakes.operators import operator
from lampwork.fakes.shapes import infer, is_dense, same_sizes

if TYPE_CHECKING:
    from lampwork.capture.record.recording import Recording as Recorder

_ADD = torch.ops.aten.add.Tensor


def note_sums(recorder: Recorder, nodes: Iterable[Any]) -> list[Any]:
    """Has `recorder` told what nodes hand on whose gradients the engine adds to others; handles to remove."""
    arrivals: dict[tuple[Any, int], list[Any]] = {}
    for node in nodes:
        for edge in node.next_functions:
            if edge[0] is not None:
                arrivals.setdefault(edge, []).append(node)
    sources = {id(node): node for each in arrivals.values() if len(each) > 1 for node in each}

    def note(gradients: Any, tangents: Any) -> None:
        recorder.handed_on = gradients

    return [node.register_hook(note) for node in sources.values()]


def is_accumulation(recorder: Recorder, func: Any, args: tuple, kwargs: dict) -> bool:
    """Whether the call is the engine's own sum of two gradients: it follows the node that gave the second."""
    return (
        func is _ADD
        and len(args) == 2
        and not kwargs
        and type(args[0]) is Fake
        and any(each is args[1] for each in recorder.handed_on)
        and not torch.is_grad_enabled()
    )


def accumulate(recorder: Recorder, left: Fake, right: Fake) -> Fake:
    """The sum, recorded, in the strides of the first gradient where eager adds to that."""
    result = infer(_ADD, (left, right), {})
    if same_sizes(left.size(), right.size()) and left.dtype == right.dtype:
        if _is_owned(recorder, left) and tuple(left.stride()) != tuple(result.stride()):
            result = _torch.tensor_without_memory(Fake, result.size(), left.stride(), result.dtype, result.device)
    recorder.record(operator(_ADD), (left, right), {}, result)
    return result


def _is_owned(recorder: Recorder, fake: Fake) -> bool:
    """Whether a gradient is a dense tensor that an operator made; views and tangents have other owners."""
    node: Any = recorder.node_of(fake)
    if node.target is getitem:  # one of several results
        node = node.args[0]
    while node.op == "call_function" and _torch.is_operator(node.target):
        what = operator(node.target)
        if what.kind != "inplace" or not what.written or type(what.written[0]) is not int:
            return what.kind == "functional" and is_dense(tuple(fake.size()), fake.stride())
        node = node.args[what.written[0]]
    return False
