"""Sizes that contents decide, in a graph that is cut in two: where they are found, and who is told.

    forward                                      backward
    %one = nonzero(%mask)       i64[u0, 1]       %rows = index(%tangent, [%places])       f32[u1]
    %two = nonzero(%other)      i64[u1, 1]       %product = mul(%rows, %saved)            u1 == u0
    returns ..., u0

What is assumed of sizes is checked as they are found, and the call runs eagerly where it does not hold. No backward
pass can do that: sizes that something is assumed of are found in the forward half, even if nothing reads them there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch.fx import Node

from lampwork import _torch
from lampwork.errors import Diagnostic, GraphBreak
from lampwork.fakes.fake import Fake
from lampwork.fakes.operators import operator
from lampwork.fakes.symbolic import SymbolicSizes, by_contents, found_symbol, size_of
from lampwork.graph.build import is_random
from lampwork.graph.simplify import finds_size
from lampwork.ir.size import symbols

if TYPE_CHECKING:
    from lampwork.graph.partition import Joined


def find_before(joined: Joined, sizes: SymbolicSizes) -> None:
    """Moves to the forward half what finds a size, among what the backward half needs, that something is assumed of.

    Raises `GraphBreak` where tangents decide that size, or what finds it may not run earlier.
    """
    assumed = {name for each in sizes.assumed() for name in each.names}
    if not assumed:
        return
    needed = joined.needed()
    for node in [each for each in joined.nodes if each in needed and finds_size(each)]:
        if not assumed.isdisjoint(map(found_symbol, sizes_in(node.meta["val"]))):
            _move(joined, node)


def _move(joined: Joined, node: Node) -> None:
    """Makes `node`, and what it is computed from, nodes of the forward half."""
    moved = {node: None}
    pending = [node]
    while pending:
        last = pending.pop()
        if last.op == "placeholder" or is_random(last) or _has_effect(last):
            raise GraphBreak(Diagnostic(
                "data-dependent", "contents that a backward pass computes decide a size, of which something is assumed",
                node.meta["location"], "Keep the value in a tensor (torch.where, masks) in what computes the gradient.",
            ))  # fmt: skip
        for each in last.all_input_nodes:
            if each in joined.backward and each not in moved:
                moved[each] = None
                pending.append(each)
    for each in moved:
        joined.backward.discard(each)
        each.meta.pop(joined.mark, None)


def _has_effect(node: Node) -> bool:
    return _torch.is_operator(node.target) and operator(node.target).has_effect


def found_before(joined: Joined) -> tuple[str, ...]:
    """Names of the symbols that the backward half needs and that contents decide in the forward half."""
    needed = joined.needed()
    names: dict[str, None] = {}
    own: set[str | None] = set()
    for node in joined.nodes:
        if node not in needed and node not in joined.tangents:
            continue
        for size in filter(by_contents, sizes_in((node.meta.get("val"), node.args, tuple(node.kwargs.values())))):
            names.update(dict.fromkeys(sorted(symbols(size_of(size)))))
        if node in needed and finds_size(node):
            own |= set(map(found_symbol, sizes_in(node.meta["val"])))
    return tuple(name for name in names if name not in own)


def sizes_in(value: Any) -> Iterator[Any]:
    """The sizes in metadata or arguments of a node; its arguments' own metadata is theirs."""
    if isinstance(value, Fake):
        yield from (*value.size(), *value.stride())
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from sizes_in(each)
    else:
        yield value
