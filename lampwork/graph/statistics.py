"""Normalisations decomposed, so that their statistics can be kept for the backward pass in place of their results.

    %log = _log_softmax(%x, 1)        ->        %top = amax(%x, [1], True)          # [8192, 1]
                                                %low = sub(%x, %top)
                                                %exp = exp(%low)
                                                %sum = sum(%exp, [1], True)
                                                %height = log(%sum)                 # [8192, 1]
                                                %log = sub(%low, %height)

    %all = native_group_norm(%x, %w, %b, ...)   %all = native_group_norm(%x, %w, %b, ...)
    %out = getitem(%all, 0)           ->        %mean = getitem(%all, 1); %rstd = getitem(%all, 2)     # [4, 32]
                                                %low = sub(%x.view(4, 32, 8, 64, 64), %mean.view(4, 32, 1, 1, 1))
                                                %out = add(mul(mul(%low, %rstd).view(4, 256, 64, 64), %w), %b)

    %all = _native_batch_norm_legit_functional(%x, %w, %b, ...)      %scale = mul(%rstd, %w)           # [64]
    %out = getitem(%all, 0)           ->        %out = add(mul(%x, %scale), sub(%b, mul(%mean, %scale)))

The cut between forward and backward (`recompute.py`) then finds that two numbers a row (or group) and `%x` are enough,
which are often kept anyway: float32 probabilities of 8192 tokens are 1.6 GB, and what follows a group norm is a silu
whose derivative needs its operand. Exact: these are the operations that the operators are lowered to. Precondition:
float32 or float64 inside, one dimension at least.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from lampwork import _torch
from lampwork.graph.build import emit, same_metadata, select, value_of
from lampwork.ir.region import FunctionalGraph

aten = torch.ops.aten


def decompose_log_softmaxes(functional: FunctionalGraph) -> FunctionalGraph:
    """`functional` with every log-softmax of float32 or float64 as the operators that it is made of."""
    graph = functional.graph
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target is not aten._log_softmax.default:
            continue
        x, dim, _ = node.args
        assert isinstance(x, Node)
        value = x.meta["val"]
        if value.dtype not in (torch.float32, torch.float64) or not value.dim() or 0 in value.size():
            continue
        with graph.inserting_before(node):
            top = emit(graph, aten.amax.default, (x, [dim], True), {}, node)
            low = emit(graph, aten.sub.Tensor, (x, top), {}, node)
            total = emit(graph, aten.exp.default, (low,), {}, node)
            total = emit(graph, aten.sum.dim_IntList, (total, [dim], True), {}, node)
            height = emit(graph, aten.log.default, (total,), {}, node)
            new = emit(graph, aten.sub.Tensor, (low, height), {}, node)
        if not same_metadata(new.meta["val"], node.meta["val"]):
            continue  # dead code now
        node.replace_all_uses_with(new)
        graph.erase_node(node)
    return functional


def decompose_norms(functional: FunctionalGraph) -> FunctionalGraph:
    """`functional` with the result of every group or batch norm that has statistics of float32 or float64 computed from
    these.

    Leaves dead code.
    """
    graph = functional.graph
    for node in list(graph.nodes):
        rebuild = _NORMS.get(node.target)
        if node.op != "call_function" or rebuild is None or not _has_wide_statistics(node):
            continue
        results = [user for user in node.users if user.target is _torch.getitem and user.args[1] == 0]
        if not results:
            continue
        with graph.inserting_before(node.next):
            new = rebuild(graph, node, *(_result(graph, node, which) for which in (1, 2)))
        for result in results:
            if same_metadata(new.meta["val"], result.meta["val"]):
                result.replace_all_uses_with(new)
    return functional


def _has_wide_statistics(node: Node) -> bool:
    x, mean = node.args[0].meta["val"], node.meta["val"][1]
    known = isinstance(x.size()[1], int)
    return known and 0 not in (*x.size(), *mean.size()) and mean.dtype in (torch.float32, torch.float64)


def _result(graph: torch.fx.Graph, node: Node, which: int) -> Node:
    """Result `which` of a node with several, at the graph's insertion point, for all who read it."""
    new = select(graph, node, which)
    for user in node.users:
        if user is not new and user.target is _torch.getitem and user.args[1] == which:
            user.replace_all_uses_with(new)
    return new


def _group_norm(graph: torch.fx.Graph, node: Node, mean: Node, rstd: Node) -> Node:
    """(x - mean) * rstd * weight + bias, one of each of the latter two a channel."""
    x, weight, bias, *_, groups, _ = node.args
    batch, channels, *rest = value_of(x).size()
    ones = [1] * (1 + len(rest))
    mean, rstd = (emit(graph, aten.view.default, (each, [batch, groups, *ones]), {}, node) for each in (mean, rstd))
    new = _as_type(graph, x, mean.meta["val"].dtype, node)
    new = emit(graph, aten.view.default, (new, [batch, groups, channels // groups, *rest]), {}, node)
    new = emit(graph, aten.sub.Tensor, (new, mean), {}, node)
    new = emit(graph, aten.mul.Tensor, (new, rstd), {}, node)
    new = emit(graph, aten.view.default, (new, [batch, channels, *rest]), {}, node)
    for operator, operand in ((aten.mul.Tensor, weight), (aten.add.Tensor, bias)):
        if operand is not None:
            new = emit(graph, operator, (new, _row(graph, operand, len(rest), node)), {}, node)
    return _as_type(graph, new, value_of(x).dtype, node)


def _batch_norm(graph: torch.fx.Graph, node: Node, mean: Node, rstd: Node) -> Node:
    """x * scale + shift, one of each a channel."""
    x, weight, bias, *_ = node.args
    dtype, rest = mean.meta["val"].dtype, value_of(x).dim() - 2
    scale = rstd
    if weight is not None:
        scale = emit(graph, aten.mul.Tensor, (rstd, _as_type(graph, weight, dtype, node)), {}, node)
    shift = emit(graph, aten.mul.Tensor, (mean, scale), {}, node)
    if bias is not None:
        shift = emit(graph, aten.sub.Tensor, (_as_type(graph, bias, dtype, node), shift), {}, node)
    else:
        shift = emit(graph, aten.neg.default, (shift,), {}, node)
    new = emit(graph, aten.mul.Tensor, (_as_type(graph, x, dtype, node), _row(graph, scale, rest, node)), {}, node)
    new = emit(graph, aten.add.Tensor, (new, _row(graph, shift, rest, node)), {}, node)
    return _as_type(graph, new, value_of(x).dtype, node)


def _row(graph: torch.fx.Graph, value: object, rest: int, like: Node) -> Node:
    """A value a channel, beside an image of `rest` dimensions."""
    return emit(graph, aten.view.default, (value, [1, -1, *[1] * rest]), {}, like)


def _as_type(graph: torch.fx.Graph, value: Any, dtype: torch.dtype, like: Node) -> Node:
    if value_of(value).dtype == dtype:
        return value
    return emit(graph, aten._to_copy.default, (value,), {"dtype": dtype}, like)


_NORMS = {
    aten.native_group_norm.default: _group_norm,
    aten._native_batch_norm_legit_functional.default: _batch_norm,
    aten._native_batch_norm_legit.no_stats: _batch_norm,
}
