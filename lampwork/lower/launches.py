"""Which launches of the program's own Triton kernels write to the memory of an input itself.

    %launch = launch("..", [%cache], [%new], ..)
    %written = getitem(%launch, 0)                  written to the input %cache at the end

The kernel may be given the input where nobody needs what was in it before, and all that reads it before is launched,
too: a kernel of ours that computes something of the old contents may run later than where the program has it.
"""

from __future__ import annotations

import operator

import torch
from torch.fx import Node

from lampwork import _torch
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
    return isinstance(node, Node) and _torch.is_operator(node.target) and (
        _torch.operator_name(node.target) == _torch.LAUNCH
    )  # fmt: skip


def launches_into_inputs(functional: FunctionalGraph) -> dict[tuple[Node, int], int]:
    """The input that a launch writes to, by the launch and the number of the written tensor in it."""
    nodes = list(functional.graph.nodes)
    if functional.copies or not any(map(is_launch, nodes)):
        return {}
    order = {node: position for position, node in enumerate(nodes)}
    inputs = [node for node in nodes if node.op == "placeholder"]
    outputs = nodes[-1].args[0]
    returned = {result.index for result in functional.results if isinstance(result, FromGraph)}
    shared = {index for group in functional.overlapping for index in group} | {index for index, _ in functional.rows}
    sources = [source for _, source in functional.writes]
    found: dict[tuple[Node, int], int] = {}
    for target, source in functional.writes:
        if target in shared or source in returned or sources.count(source) > 1:
            continue
        chain = _chain(outputs[source], inputs[target])
        if chain and outputs.count(outputs[source]) == 1 and _is_alone(inputs[target], chain, order):
            found.update(dict.fromkeys(chain, target))
    return found


def _chain(value: Node, source: Node) -> list[tuple[Node, int]]:
    """The launches that made `value` of the contents of `source`, the first one first; none if something else did."""
    chain: list[tuple[Node, int]] = []
    while True:
        while value.target in _WHOLE:
            value = value.args[0]
        if value is source:
            return chain[::-1]
        if value.target is not operator.getitem or not is_launch(value.args[0]):
            return []
        launch, place = value.args
        chain.append((launch, place))
        value = launch.args[1][place]


def _is_alone(source: Node, chain: list[tuple[Node, int]], order: dict[Node, int]) -> bool:
    """Whether launches alone read each state of the memory that a later one changes, and before that one does."""
    states = [[source]]
    for launch, place in chain[:-1]:
        states.append([each for each in launch.users if each.args[1] == place])
    for state, (launch, _) in zip(states, chain, strict=True):
        reached = list(state)
        for node in reached:
            for user in node.users:
                if user.target in _WHOLE:
                    reached.append(user)
                elif not is_launch(user) or order[user] > order[launch]:
                    return False
        given = [*launch.args[1], *launch.args[2]]
        if sum(each in reached for each in given) != 1:
            return False
    return True
