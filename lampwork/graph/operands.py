"""Operands of derivatives made small before the cut, so that less is kept for the backward pass.

Of some operands only shape and layout are looked at: of what a pool takes, and of a convolution's weight (image) where
only the gradient of the image (weight) is wanted. They become memory that nobody writes, made when it is needed.

    %grad = max_pool2d_with_indices_backward(%g, %x, ...)      ->      %grad = ..._backward(%g, empty_strided(...), ...)

Where in an image the maximum of a window is takes 8 bytes; how far from the window's beginning takes one or two.

    %where = getitem(%pool, 1)                    # i64        %where = getitem(%pool, 1)
    %grad = ..._backward(%g, %x, ..., %where)     ->           %first = add(arange(...), arange(...))  # of each window
                                                               %kept = _to_copy(sub(%where, %first), int16)
                                                               %again = add(_to_copy(%kept, int64), %first)
                                                               %grad = ..._backward(%g, %x, ..., %again)

Exact. Non-goals: sizes that are not known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Node

from lampwork import _torch
from lampwork.graph.build import emit
from lampwork.ir.region import FunctionalGraph

aten = torch.ops.aten

_POOLS = {
    aten.max_pool2d_with_indices_backward.default: (aten.max_pool2d_with_indices.default, 2),
    aten.max_pool3d_with_indices_backward.default: (aten.max_pool3d_with_indices.default, 3),
}
#: Which argument is an image of which only the shape is looked at.
_SHAPE_OF = dict.fromkeys(
    (
        *_POOLS, aten.avg_pool2d_backward.default, aten.avg_pool3d_backward.default,
        aten._adaptive_avg_pool2d_backward.default, aten._adaptive_avg_pool3d_backward.default,
    ), 1,
)  # fmt: skip


def forget_contents(functional: FunctionalGraph) -> FunctionalGraph:
    """`functional` with operands of derivatives that only tell a shape replaced by memory that nobody writes."""
    graph = functional.graph
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        for place in _told_by_shape(node):
            value = node.args[place].meta["val"]
            if all(isinstance(each, int) for each in (*value.size(), *value.stride())):
                with graph.inserting_before(node):
                    layout = (list(value.size()), list(value.stride()))
                    options = {"dtype": value.dtype, "device": value.device}
                    empty = emit(graph, aten.empty_strided.default, layout, options, node)
                empty.meta["unread"] = True
                node.update_arg(place, empty)
    return functional


def _told_by_shape(node: Node) -> Iterator[int]:
    """Arguments of the node whose contents are not read."""
    if node.target in _SHAPE_OF:
        yield _SHAPE_OF[node.target]
    elif node.target is aten.convolution_backward.default:
        of_image, of_weight, _ = node.args[10]
        if not of_weight:
            yield 1
        if not of_image:
            yield 2


def keep_places_in_windows(functional: FunctionalGraph) -> FunctionalGraph:
    """`functional` with the derivatives of maxima of windows reading where these are from one or two bytes each."""
    graph = functional.graph
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target not in _POOLS:
            continue
        where = node.args[-1]
        assert isinstance(where, Node)
        pool, count = _POOLS[node.target]
        if where.target is _torch.getitem and where.args[0].target is pool:
            again = _from_place(graph, where, node, count)
            if again is not None:
                node.replace_input_with(where, again)
    return functional


def _from_place(graph: torch.fx.Graph, where: Node, derivative: Node, count: int) -> Node | None:
    """`where` computed from a smaller type; None where there is none, or a size is not known."""
    image, places = derivative.args[1].meta["val"].size()[-count:], where.meta["val"]
    windows = places.size()[-count:]
    kernel, stride, padding, dilation = (_each(value, count) for value in derivative.args[2:6])
    if not all(isinstance(each, int) for each in (*image, *windows)):
        return None
    stride = stride or kernel
    steps = [math.prod(image[axis + 1 :]) for axis in range(count)]
    farthest = sum((size - 1) * spacing * step for size, spacing, step in zip(kernel, dilation, steps))
    small = next((each for each in (torch.int8, torch.int16, torch.int32) if farthest <= torch.iinfo(each).max), None)
    if small is None:
        return None
    options = {"dtype": torch.int64, "device": places.device}
    with graph.inserting_before(where.next):
        first: Any = None
        for axis in range(count):
            begin, step = -padding[axis] * steps[axis], stride[axis] * steps[axis]
            end = begin + windows[axis] * step
            line = emit(graph, aten.arange.start_step, (begin, end, step), options, where)
            line = emit(graph, aten.view.default, (line, [-1] + [1] * (count - 1 - axis)), {}, where)
            first = line if first is None else emit(graph, aten.add.Tensor, (first, line), {}, where)
        kept = emit(graph, aten.sub.Tensor, (where, first), {}, where)
        kept = emit(graph, aten._to_copy.default, (kept,), {"dtype": small}, where)
        again = emit(graph, aten._to_copy.default, (kept,), {"dtype": torch.int64}, where)
        return emit(graph, aten.add.Tensor, (again, first), {}, where)


def _each(value: Any, count: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * count if len(values) == 1 else values
