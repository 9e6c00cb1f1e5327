"""Growing a functional graph with metadata: each node is evaluated on fakes as it is added."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch.fx import Node

from lampwork import _torch
from lampwork.fakes.evaluate import evaluate
from lampwork.fakes.operators import operator
from lampwork.fakes.shapes import Spec, materialize
from lampwork.fakes.symbolic import sizes_of


def value_of(argument: object) -> Any:
    """An argument with every node replaced by the fake it computes, in plain lists and tuples: those of `torch.fx` are
    classes of their own, which operators on fakes do not look into."""
    if isinstance(argument, Node):
        return argument.meta["val"]
    if isinstance(argument, (list, tuple)):
        found = [value_of(each) for each in argument]
        return found if isinstance(argument, list) else tuple(found)
    return argument


def emit(
    graph: torch.fx.Graph, overload: object, args: tuple, kwargs: dict | None = None, like: Node | None = None
) -> Node:
    """A new node at the end of `graph` (or the graph's insertion point), with `meta` of `like` and its own value."""
    kwargs = kwargs or {}
    value = evaluate(overload, value_of(args), {key: value_of(each) for key, each in kwargs.items()})
    return place(graph, overload, args, kwargs, value, like)


def place(graph: torch.fx.Graph, target: Any, args: tuple, kwargs: dict, value: object, like: Node | None) -> Node:
    """`emit` with the value already known."""
    base = operator(target).base if _torch.is_operator(target) else target.__name__
    node = _torch.append_node(graph, base, target, args, kwargs)
    # Not assigned: a node whose attributes change leaves the graph's table of targets and enters it again.
    if like is not None:
        node.meta.update(like.meta)
    node.meta["val"] = value
    return node


def drawn(
    graph: torch.fx.Graph, op: _torch.Overload, layout: torch.Tensor, arguments: dict[str, object], like: Node
) -> Node:
    """What `op`, which fills a tensor with random numbers, writes to memory with the metadata of `layout`.

    `arguments`: the others, by name.
    """
    size, stride = list(layout.size()), list(layout.stride())
    about = dict(zip(_torch.DRAWN_LAYOUT, (size, stride, layout.dtype, layout.device)))
    value = materialize(Spec(tuple(size), tuple(stride), layout.dtype, layout.device), (), {})
    return place(graph, _torch.drawing(op), (), arguments | about, value, like)


def select(graph: torch.fx.Graph, parent: Node, index: int) -> Node:
    """Result `index` of a node with several."""
    return place(graph, _torch.getitem, (parent, index), {}, parent.meta["val"][index], parent)


def is_random(node: Node) -> bool:
    return _torch.is_operator(node.target) and operator(node.target).is_random


def same_metadata(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Same dtype, shape, strides and lazy bits. Strides of dimensions of size 1 count too: programs can read them.

    Symbolic ones are the same where they are for all sizes that the program serves.
    """
    if left.dtype != right.dtype or left.is_conj() != right.is_conj() or left.is_neg() != right.is_neg():
        return False
    return sizes_of(left.size()) == sizes_of(right.size()) and sizes_of(left.stride()) == sizes_of(right.stride())
