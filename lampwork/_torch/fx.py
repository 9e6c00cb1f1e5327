"""Nodes of `torch.fx` graphs, without their costs, and the targets that are no operators."""

from __future__ import annotations

import operator as _operator

import torch
import torch.fx
from torch.fx.node import Node


def append_node(graph: torch.fx.Graph, base: str, target: object, args: tuple, kwargs: dict) -> Node:
    """`graph.call_function(target, args, kwargs)` named `base`, `base_1`, ...: 2 us in place of 12.

    `base` must be a valid identifier. Leans on `Graph._insert` and the graph's namespace; `create_node` replaces it.
    """
    namespace = graph._graph_namespace
    number = namespace._base_count.get(base, -1) + 1
    name = f"{base}_{number}" if number else base
    used = namespace._used_names
    while name in used:
        number += 1
        name = f"{base}_{number}"
    namespace._base_count[base] = number
    used.add(name)
    return _append(graph, Node(graph, name, "call_function", target, args, kwargs))


def append_placeholder(graph: torch.fx.Graph, name: str) -> Node:
    """`graph.create_node("placeholder", name)`, for a name that no other node has."""
    assert name not in graph._graph_namespace._used_names
    graph._graph_namespace._used_names.add(name)
    return _append(graph, Node(graph, name, "placeholder", name, (), {}))


def _append(graph: torch.fx.Graph, node: Node) -> Node:
    graph._insert(node)
    graph._find_nodes_lookup_table.insert(node)
    graph._len += 1
    return node


def free_nodes(graph: torch.fx.Graph) -> None:
    """Frees the nodes of a graph that nobody needs any more: they are cycles throughout, and a collection that found
    them would look at each several times."""
    root = graph._root
    node = root._next
    put = object.__setattr__  # `Node`'s own keeps the table of nodes in step, which is emptied below
    while node is not root:
        following = node._next
        node.meta.clear()
        node.users.clear()
        put(node, "_args", ())
        put(node, "_kwargs", {})
        put(node, "_prev", None)
        put(node, "_next", None)
        node._input_nodes.clear()
        node = following
    root._prev = root._next = root
    graph._find_nodes_lookup_table.table.clear()


#: What `torch.fx` graphs select results of multi-result operators with.
getitem = _operator.getitem


def tensor_constant(dtype: str, shape: tuple[int, ...], data: bytes) -> torch.Tensor:
    """The target of literal nodes: a fresh CPU tensor with these contents (little-endian, row-major)."""
    count = 1
    for size in shape:
        count *= size
    if not count:
        return torch.empty(shape, dtype=getattr(torch, dtype))
    return torch.frombuffer(bytearray(data), dtype=getattr(torch, dtype), count=count).reshape(shape)


def finish_graph_module(module: torch.fx.GraphModule) -> None:
    """Generate the module's code now, if it was put off to the first call: its class changes when that happens."""
    getattr(module, "real_recompile", lambda: None)()
