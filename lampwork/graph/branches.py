"""Branches that cost less than to wait for their predicate: both are computed, and elements are picked.

    %cond = cond(%p, [%x], Body(sin), Body(cos))         %sin = sin(%x);  %cos = cos(%x)
    %y = getitem(%cond, 0)                        ->     %y = where(%p, %sin, %cos)

So a branch fuses with what is around it, a GPU decides by itself, and its program may be a CUDA graph. Only for
operators that kernels compute in passing and that raise for no contents: what the branch that is not taken computes is
seen by nobody, NaN included. Exact.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node

from lampwork import _torch
from lampwork.backends import backend_of
from lampwork.fakes.fake import Fake
from lampwork.fakes.operators import operator
from lampwork.fakes.symbolic import hint_of
from lampwork.graph.build import emit, place, same_metadata
from lampwork.graph.functionalize import functionalize
from lampwork.graph.simplify import keep_checks, may_raise, remove_dead
from lampwork.ir.body import Body
from lampwork.ir.region import FromGraph, FunctionalGraph, Region, Return
from lampwork.ir.source import Argument
from lampwork.ir.template import ConstantValue

aten = torch.ops.aten

#: Bytes of all that both branches compute. Calling a branch takes the host of the 2-core machine of our measurements
#: 10 us, in which its kernels move this much; a GPU that is waited for starves for longer, and moves more.
LARGEST_BYTES = 1 << 17
LARGEST_BYTES_ON_A_GPU = 1 << 25

#: Beside elementwise operators, views and tensors that are made of numbers.
_IN_PASSING = frozenset({
    aten.clone.default, aten._to_copy.default, aten.where.self, aten.sum.default, aten.sum.dim_IntList,
    aten.mean.default, aten.mean.dim, aten.amax.default, aten.amin.default, aten.cat.default, aten.stack.default,
})  # fmt: skip


def pick_branches(functional: FunctionalGraph) -> FunctionalGraph:
    """Every branch that costs little as operators of the graph."""
    graph = functional.graph
    limit = LARGEST_BYTES_ON_A_GPU if backend_of(functional.device).streams else LARGEST_BYTES
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target is _torch.control_flow_operators()["cond"]:
            _pick(graph, node, limit, functional.device)
    return functional


def _pick(graph: torch.fx.Graph, node: Node, limit: int, device: str) -> None:
    pred, inputs, *bodies = node.args
    made = [_pure(body, device) for body in bodies]
    if not all(made) or sum(_bytes(each) for each in made if each is not None) > limit:
        return
    if any(each.meta["val"].device != pred.meta["val"].device for each in inputs):
        return
    like = node.meta["val"]
    with graph.inserting_before(node):
        truth = pred
        if pred.meta["val"].dtype is not torch.bool:
            truth = emit(graph, aten.ne.Scalar, (truth, 0), {}, node)
        if pred.meta["val"].dim():
            truth = emit(graph, aten.view.default, (truth, []), {}, node)
        results = [_copied(graph, each, inputs, node) for each in made if each is not None]
        picked = [emit(graph, aten.where.self, (truth, *each), {}, node) for each in zip(*results, strict=True)]
    if any(not same_metadata(one.meta["val"], other) or one.meta["val"].device != other.device
           for one, other in zip(picked, like, strict=True)):  # fmt: skip
        return  # what was added is dead
    for user in list(node.users):
        user.replace_all_uses_with(picked[user.args[1]])
        graph.erase_node(user)
    graph.erase_node(node)


def _pure(body: Body, device: str) -> FunctionalGraph | None:
    """The body without writes, its branches picked, if all that it does is done in passing."""
    inputs = tuple(map(Argument, range(len(body.parameters))))
    functional = functionalize(Region("branch", body.graph, inputs, (), (), (), Return(ConstantValue(None))))
    functional = remove_dead(pick_branches(keep_checks(replace(functional, device=device))))
    if functional.writes or not all(type(each) is FromGraph and each.view is None for each in functional.results):
        return None
    if not all(_in_passing(node) for node in functional.graph.nodes if node.op == "call_function"):
        return None
    return functional


def _in_passing(node: Node) -> bool:
    if node.target in (_torch.getitem, _torch.tensor_constant):
        return True
    if not _torch.is_operator(node.target) or may_raise(node):
        return False
    op = operator(node.target)
    if op.is_random or op.has_effect:
        return False
    makes = op.kind == "functional" and node.target.namespace == "aten" and not node.all_input_nodes
    return op.elementwise or op.kind == "view" or node.target in _IN_PASSING or makes


def _bytes(functional: FunctionalGraph) -> int:
    """Of all that is computed, a view for nothing."""
    found = 0
    for node in functional.graph.nodes:
        value = node.meta.get("val")
        is_view = _torch.is_operator(node.target) and operator(node.target).kind == "view"
        if node.op == "call_function" and isinstance(value, Fake) and not is_view:
            count = 1
            for size in value.size():
                count *= hint_of(size)
            found += count * value.element_size()
    return found


def _copied(graph: torch.fx.Graph, functional: FunctionalGraph, inputs: Any, like: Node) -> list[Node]:
    """The results of the functional graph's operators, which are added where the graph is inserted to."""
    nodes = list(functional.graph.nodes)
    made = dict(zip([node for node in nodes if node.op == "placeholder"], inputs, strict=True))

    def mapped(value: Any) -> Any:
        if isinstance(value, Node):
            return made[value]
        if isinstance(value, (tuple, list)):
            return type(value)(mapped(each) for each in value)
        return value

    for node in nodes:
        if node.op != "call_function":
            continue
        args, kwargs = mapped(tuple(node.args)), {key: mapped(each) for key, each in node.kwargs.items()}
        if _torch.is_operator(node.target):
            made[node] = emit(graph, node.target, args, kwargs, like)
        else:
            made[node] = place(graph, node.target, args, kwargs, node.meta["val"], like)
    outputs = nodes[-1].args[0]
    return [made[outputs[each.index]] for each in functional.results if isinstance(each, FromGraph)]
