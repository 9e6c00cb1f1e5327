"""A log-softmax taken apart, so that its statistics can be kept for the backward pass in its place.

    %log = _log_softmax(%x, 1)        ->        %top = amax(%x, [1], True)          # [8192, 1]
                                                %low = sub(%x, %top)
                                                %exp = exp(%low)
                                                %sum = sum(%exp, [1], True)
                                                %height = log(%sum)                 # [8192, 1]
                                                %log = sub(%low, %height)

The cut between forward and backward (`recompute.py`) then finds that two numbers a row and `%x` are enough, which for
the logits of a language model are often results anyway: float32 probabilities of 8192 tokens are 1.6 GB. Exact: these
are the operations that the operator is lowered to. Precondition: float32 or float64 inside, one dimension at least.
"""

from __future__ import annotations

import torch
from torch.fx import Node

from lampwork.graph.build import emit, same_metadata
from lampwork.ir.region import FunctionalGraph

aten = torch.ops.aten


def take_log_softmaxes_apart(functional: FunctionalGraph) -> FunctionalGraph:
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
