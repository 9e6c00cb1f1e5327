"""Which launches of the program's own Triton kernels, and writers of libraries, write to the memory of an input itself.

    %launch = launch("..", [%cache], [%new], ..)
    %written = getitem(%launch, 0)                  written to the input %cache at the end

The kernel may be given the input where nobody needs what was in it before, and all that reads it before is launched,
too: a kernel of ours that computes something of the old contents may run later than where the program has it. And
nothing after it may find that the program does not serve this call, which then runs eagerly and writes again.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.fx import Node

from lampwork import _torch
from lampwork.fakes.operators import operator
from lampwork.ir.region import FromGraph, FunctionalGraph

aten = torch.ops.aten

#: Operators that give all of a tensor's elements in their order in memory.
_WHOLE = frozenset({aten.view.default, aten.alias.default, aten.detach.default})
#: What is in memory that one of these gives is unspecified.
_UNSET = frozenset({
    aten.empty.memory_format, aten.empty_like.default, aten.new_empty.default, aten.empty_strided.default,
    aten.new_empty_strided.default, aten.empty_permuted.default,
})  # fmt: skip
_VIEWS = _WHOLE | {
    aten.as_strided.default, aten.permute.default, aten.slice.Tensor, aten.select.int, aten.t.default,
    aten.transpose.int,
}  # fmt: skip


def is_unset(node: Node) -> bool:
    """Whether the contents of a node's value are whatever was in its memory."""
    while node.target in _VIEWS:
        node = node.args[0]
    return node.target in _UNSET


def is_launch(node: object) -> bool:
    return (
        isinstance(node, Node)
        and _torch.is_operator(node.target)
        and _torch.operator_name(node.target) == _torch.LAUNCH
    )


def writes_of(node: object) -> dict[int, Node | None] | None:
    """For a launch, or the functional form of an operator of a library that writes: the tensor whose new contents a
    result is, by the number of the result. None for other nodes."""
    if is_launch(node):
        return dict(enumerate(node.args[1]))  # type: ignore[attr-defined]
    if not isinstance(node, Node) or not _torch.is_operator(node.target):
        return None
    writer = _torch.written_arguments_of(node.target)
    if writer is None:
        return None
    _, op, names = writer
    given = dict(zip([each.name for each in op._schema.arguments], node.args)) | node.kwargs
    first = len(op._schema.returns)
    return {first + place: given.get(name) for place, name in enumerate(names)}


def launches_into_inputs(functional: FunctionalGraph) -> dict[tuple[Node, int], int]:
    """The input that a launch, or another writer, writes to, by the node and the number of the result that is what it
    has written. An operator of a library writes all that it writes to inputs, or nothing."""
    nodes = list(functional.graph.nodes)
    if functional.copies or not any(writes_of(node) is not None for node in nodes):
        return {}
    order = {node: position for position, node in enumerate(nodes)}
    inputs = [node for node in nodes if node.op == "placeholder"]
    outputs = nodes[-1].args[0]
    returned = {result.index for result in functional.results if isinstance(result, FromGraph)}
    shared = {index for group in functional.overlapping for index in group} | {index for index, _ in functional.rows}
    sources = [source for _, source in functional.writes]
    chains: dict[int, list[tuple[Node, int]]] = {}
    last_doubt = max((order[node] for node in nodes if _may_refuse(node)), default=-1)
    for target, source in functional.writes:
        if target in shared or source in returned or sources.count(source) > 1:
            continue
        chain = _chain(outputs[source], inputs[target])
        if not chain or order[chain[0][0]] < last_doubt:
            continue
        if outputs.count(outputs[source]) == 1 and _is_alone(inputs[target], chain, order):
            chains[target] = chain
    while True:
        found = {step: target for target, chain in chains.items() for step in chain}
        kept = {target: chain for target, chain in chains.items() if all(_is_whole(node, found) for node, _ in chain)}
        if len(kept) == len(chains):
            return found
        chains = kept


def _may_refuse(node: Node) -> bool:
    """Whether something is assumed of contents there: what a check tells, or a size that they decide."""
    if node.op != "call_function" or not _torch.is_operator(node.target):
        return False
    is_check = node.target.name().startswith("aten::_assert")
    return is_check or operator(node.target).kind == "data-dependent"


def _is_whole(node: Node, found: dict[tuple[Node, int], int]) -> bool:
    """Whether all that a writer writes is an input's, where it must be."""
    return is_launch(node) or all((node, place) in found for place in writes_of(node) or ())


def _chain(value: Node, source: Node) -> list[tuple[Node, int]]:
    """The writers that made `value` of the contents of `source`, the first one first; none if something else did."""
    chain: list[tuple[Node, int]] = []
    while True:
        while value.target in _WHOLE:
            value = value.args[0]
        if value is source:
            return chain[::-1]
        writer, place = value.args[:2] if value.target is _torch.getitem else (value, 0)
        before = (writes_of(writer) or {}).get(place)
        if before is None:
            return []
        chain.append((writer, place))
        value = before


def _is_alone(source: Node, chain: list[tuple[Node, int]], order: dict[Node, int]) -> bool:
    """Whether writers alone read each state of the memory that a later one changes, and before that one does."""
    states = [[source]]
    for writer, place in chain[:-1]:
        whole = isinstance(writer.meta["val"], torch.Tensor)
        states.append([writer] if whole else [each for each in writer.users if each.args[1] == place])
    for state, (writer, _) in zip(states, chain, strict=True):
        reached = list(state)
        for node in reached:
            for user in node.users:
                if user.target in _WHOLE:
                    reached.append(user)
                elif writes_of(user) is None or order[user] > order[writer]:
                    return False
        if sum(each in reached for each in _nodes_in((writer.args, tuple(writer.kwargs.values())))) != 1:
            return False
    return True


def _nodes_in(value: object) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from _nodes_in(each)
