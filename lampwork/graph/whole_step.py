"""Training steps in one graph: what their backward passes read of the forward ones is kept, or computed again there.

    %a = sin(%x)                         %a = sin(%x)
    %b = mm(%a, %w)                      %b = mm(%a, %w)
    %g = mm(%t, %wt)          ->         %g = mm(%t, %wt)
    %c = cos(%x)                         %c = cos(%x)
    %h = mul(%g, %c)                     %h = mul(%g, %c)
    %d = mm(%a^T, %t)                    %a_again = sin(%x)
                                         %d = mm(%a_again^T, %t)

The choice is that of regions whose results are differentiated (`recompute.py`), `memory_budget` and checkpointed
functions included; but nothing is cut in two: copies of forward nodes stand right before their first reader.

What backward nodes compute of forward values alone (a silu's derivative) is not of the forward pass, either: it is
marked as what is rematerialised is, which is scheduled where it is first needed (`schedule/levels.py`).
"""

from __future__ import annotations

import torch
from torch.fx import Node

from lampwork.graph.build import is_random
from lampwork.graph.partition import Choose, Joined, copied, is_free
from lampwork.graph.recompute import is_pointwise, size_bytes
from lampwork.ir.differentiation import Joint
from lampwork.ir.region import FunctionalGraph


class WholeStep(Joined):
    """A training step with its nodes classified. What the backward passes lead to (updates, and the forward passes
    after them) counts as backward: it comes too late to be computed again."""

    mark = "gradient"

    def __init__(self, functional: FunctionalGraph) -> None:
        super().__init__(functional, Joint(0, 0, (), (), (), ()), len(functional.graph.nodes))
        self.gradient_results = ()
        self.written = self.copied = self.copied_results = set()  # memory of the caller's is written at the end

    def needed(self) -> set[Node]:
        """The nodes of the backward passes: `remove_dead` has been here."""
        return {node for node in self.backward if "gradient" in node.meta}


def rematerialise(functional: FunctionalGraph, choose: Choose) -> FunctionalGraph:
    """`functional`, which takes gradients itself, with forward nodes that `choose` does not save computed again where
    backward nodes read them. Random operators are not repeated. Exact."""
    step = WholeStep(functional)
    saved = choose(step)
    needed = step.needed()
    graph = functional.graph
    recomputed: dict[Node, Node] = {}

    def repeated(node: Node) -> Node:
        """What backward nodes read in place of a forward node: a copy at the graph's insertion point, or the node."""
        pending = [node]
        while pending:
            last = pending[-1]
            if last in recomputed:
                pending.pop()
                continue
            if last in saved or last in step.backward or last.op != "call_function" or is_random(last):
                recomputed[last] = last
                pending.pop()
                continue
            missing = [each for each in last.all_input_nodes if each not in recomputed]
            if missing:
                pending.extend(missing)
                continue
            recomputed[last] = copied(graph, last, recomputed)
            recomputed[last].meta["gradient"] = recomputed[last].meta["rematerialised"] = True
            pending.pop()
        return recomputed[node]

    for node in step.nodes:
        if node in needed:
            with graph.inserting_before(node):
                for each in node.all_input_nodes:
                    if each not in step.backward and (copy := repeated(each)) is not each:
                        node.replace_input_with(each, copy)
            if _is_of_forward_values(node):
                node.meta["rematerialised"] = True
    return functional


def _is_of_forward_values(node: Node) -> bool:
    """Whether backward node `node` reads forward values and constants alone, and is no smaller than any: what it reads
    would live longer if it waited."""
    if not is_pointwise(node) and not is_free(node):
        return False
    value = node.meta["val"]
    for each in node.all_input_nodes:
        if "gradient" in each.meta and "rematerialised" not in each.meta or each.target in _SEEDS:
            return False
        if isinstance(read := each.meta.get("val"), torch.Tensor) and size_bytes(read) > size_bytes(value):
            return False
    return True


#: Where gradients begin.
_SEEDS = {torch.ops.aten.ones_like.default}
