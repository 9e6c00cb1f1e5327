"""Puts a traced function into a graph, in place of something that has its results."""

from __future__ import annotations

from collections.abc import Sequence

import torch.fx
from torch.fx import Node

from lampwork import _torch
from lampwork.passes.trace import Traced


def copy_into(graph: torch.fx.Graph, before: Node, made: Traced, arguments: Sequence[object], like: Node) -> list[Node]:
    """The results of `made`, copied into `graph` before a node, on the nodes among `arguments`. Copies are in place of
    `like`: its line of the program, and its half of a joint graph."""
    copies: dict[Node, Node] = {}
    for placeholder, argument in zip(made.inputs, arguments, strict=True):
        if placeholder is not None:
            assert isinstance(argument, Node)
            copies[placeholder] = argument
    with graph.inserting_before(before):
        for node in made.graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            copy = copies[node] = graph.node_copy(node, copies.__getitem__)
            copy.meta = {**like.meta, **{key: node.meta[key] for key in ("val", "constant") if key in node.meta}}
    return [copies[node] for node in made.results]


def replace_results(node: Node, results: Sequence[Node], many: bool) -> None:
    """Whoever reads a node reads its one result; with `many`, whoever selects one of its results. The node goes."""
    if many:
        for user in list(node.users):
            assert user.target is _torch.getitem
            user.replace_all_uses_with(results[user.args[1]])
            node.graph.erase_node(user)
    else:
        node.replace_all_uses_with(results[0])
    node.graph.erase_node(node)
