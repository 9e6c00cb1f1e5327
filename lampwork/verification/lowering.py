"""Which rule of lowering is wrong. Views have no buffer of their own: what reads one shows that it is wrong.

An operator is lowered alone, on what its operands should be; then with each of the views that it reads lowered as well.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
import torch.fx
from torch.fx import Node

from lampwork.config import Settings
from lampwork.debug.interpret.nests import run_lowered
from lampwork.ir.region import FromGraph, FunctionalGraph
from lampwork.lower.lower import lower
from lampwork.verification.judge import Difference
from lampwork.verification.operators import Found, Values, origin_of
from lampwork.verification.values import run_on

#: Operators that are tried where no wrong one is known.
MOST = 200


def wrong_rule(
    functional: FunctionalGraph, inputs: list[Any], settings: Settings, right: Values, found: Found | None
) -> Found | None:
    """The first operator whose rule is wrong. `found`: the one whose buffer is wrong, if that is known. `inputs`: of
    the graph, derived ones too."""
    nodes = [node for node in functional.graph.nodes if node.op == "call_function"]
    named = {node.name: node for node in nodes}
    given = dict(zip([n for n in functional.graph.nodes if n.op == "placeholder"], inputs))
    known = named.get(found.origin.node) if found is not None else None
    for node in [known] if known is not None else nodes[:MOST]:
        for kept in _tries(node):
            what = _wrong(functional, node, kept, given, settings, right)
            if what is not None:
                return Found(origin_of(kept[0] if kept[0].target is not operator.getitem else node), what)
    return found


def _tries(node: Node) -> Iterator[tuple[Node, ...]]:
    """What is lowered together with `node`, the one that is to blame first: itself, then each view that it reads,
    with those between."""
    own = (node.args[0],) if node.target is operator.getitem and isinstance(node.args[0], Node) else ()
    yield (*own, node)
    reached: list[tuple[Node, tuple[Node, ...]]] = [(each, (node,)) for each in node.all_input_nodes]
    for _ in range(12):
        if not reached:
            return
        each, between = reached.pop(0)
        if each.op == "call_function":
            yield (each, *between)
            reached += [(other, (each, *between)) for other in each.all_input_nodes]


def _wrong(
    functional: FunctionalGraph, node: Node, kept: tuple[Node, ...], given: dict[Node, Any], settings: Settings,
    right: Values,
) -> Difference | None:  # fmt: skip
    graph = torch.fx.Graph()
    made: dict[Node, Node] = {}
    values: list[Any] = []
    wanted = {each for one in kept for each in one.all_input_nodes} - set(kept)
    for each in functional.graph.nodes:
        if each in wanted and each.op != "get_attr":
            value = given.get(each, right.eager.get(each.name))
            if value is None:
                return None  # a number, or several tensors
            made[each] = graph.placeholder(each.name)
            values.append(_laid_out(value, each.meta.get("val")))
        elif each in kept or each in wanted:
            made[each] = graph.node_copy(each, made.__getitem__)
        else:
            continue
        made[each].meta = dict(each.meta)
    graph.output((made[node],))
    alone = FunctionalGraph(graph, (FromGraph(0),), device=functional.device)
    try:
        lowered = lower(alone, settings)
    except Exception:  # it cannot be lowered alone
        return None
    try:
        ran = run_on(values, lambda own: run_lowered(lowered, own))
    except Exception as error:
        return Difference(node.name, f"{type(error).__name__}: {error}")
    return right.wrong(node.name, ran.results[0])


def _laid_out(value: Any, fake: Any) -> Any:
    """`value` with the strides that the graph says, if these are numbers."""
    if not isinstance(value, torch.Tensor) or not isinstance(fake, torch.Tensor) or value.layout != torch.strided:
        return value
    strides = fake.stride()
    if not all(type(step) is int for step in strides) or tuple(value.stride()) == tuple(strides):
        return value
    made = torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
    once = tuple(slice(0, 1) if step == 0 else slice(None) for step in strides)
    made[once].copy_(value[once])
    return made
