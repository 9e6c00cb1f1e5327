"""The versions that tensors have after a region: how often autograd has seen their memory written. And which of those
in one memory autograd takes for views of each other.

    x.add_(1); x[0] = 2         the version of x rises by 2
    x.data.add_(1)              not at all: `.data` has a version of its own
    y = x * 1; y.add_(1)        y has version 1 when the caller gets it

Eager raises a version once for each operator that writes, in code above the kernels. Fakes go through the same code, so
theirs are eager's; fakes of inputs begin with 0.

    y = torch.zeros(3); u = y.detach()      u has the version of y, but what is written to u has no gradient in y
    v = u[1:]                               a view of u, and so not of y
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from lampwork import _torch
from lampwork.capture.autograd.result_views import makes_view, written_node
from lampwork.fakes.fake import Fake
from lampwork.ir.differentiation import Joint


class Versions:
    """What `Region.raised`, `versions` (here `made`), `separate`, `detached` and `inference` say."""

    def __init__(self, inputs: Sequence[Any], outputs: Sequence[Any], joint: Joint | None) -> None:
        # The function that ties a differentiated region to autograd raises the version of what it writes by one itself.
        dirty = {each.index for each in joint.outputs if each.written} if joint is not None else ()
        rises = [
            (index, _torch.version_of(fake) - (index in dirty))
            for index, fake in enumerate(inputs)
            if isinstance(fake, Fake)
        ]
        self.raised = tuple([each for each in rises if each[1] > 0])
        of_inputs: dict[int, list[Fake]] = {}
        for fake in inputs:
            if isinstance(fake, Fake):
                of_inputs.setdefault(_torch.storage_key(fake), []).append(fake)
        of_outputs: dict[int, list[Fake]] = {}
        for fake in outputs:
            if not isinstance(fake, Fake):
                continue
            others = of_outputs.setdefault(_torch.storage_key(fake), [])
            if not any(fake is other for other in others):
                others.append(fake)
        made: list[tuple[int, int]] = []
        separate: list[tuple[int, int]] = []
        owners: dict[int, list[tuple[int, Fake]]] = {}
        for index, fake in enumerate(outputs):
            if not isinstance(fake, Fake):
                continue
            key = _torch.storage_key(fake)
            neighbours, beside = of_inputs.get(key, []), of_outputs[key]
            if any(fake is each for each in neighbours):
                continue
            # Autograd ties those with a history together, and hands them out as they are.
            first = neighbours or [each for each in beside if each.requires_grad] or beside[:1]
            is_separate = fake is not first[0] and not any(
                _torch.shares_version(fake, each) for each in first if each is not fake
            )
            if is_separate:
                # The first of those that share a version owns it.
                found = owners.setdefault(key, [])
                sharing = [other for other, each in found if _torch.shares_version(fake, each)]
                separate.append((index, sharing[0] if sharing else index))
                if not sharing:
                    found.append((index, fake))
            if (is_separate or not neighbours) and _torch.version_of(fake):
                made.append((index, _torch.version_of(fake)))
        self.made, self.separate = tuple(made), tuple(separate)
        self.detached = _detached(inputs, outputs, separate)
        #: Where the call itself is in inference mode, all that is made is such a tensor by itself.
        outside = not torch.is_inference_mode_enabled()
        self.inference = tuple(
            [index for index, fake in enumerate(outputs) if outside and isinstance(fake, Fake) and fake.is_inference()]
        )


def _detached(
    inputs: Sequence[Any], outputs: Sequence[Any], separate: Sequence[tuple[int, int]]
) -> tuple[tuple[int, int], ...]:
    """(result, another one) where autograd does not take a result for a view in the memory that it shares: it is
    detached from there, as the other, earlier one is, of which it is a view, or by itself. Results with a history, and
    what lies beside them, are tied together by autograd, but for those with a version of their own."""
    owners = dict(separate)
    of_inputs = {_torch.storage_key(fake) for fake in inputs if isinstance(fake, Fake)}
    tied = {_torch.storage_key(fake) for fake in inputs if isinstance(fake, Fake) and fake.requires_grad}
    tied.update(_torch.storage_key(fake) for fake in outputs if isinstance(fake, Fake) and not fake.is_leaf)
    shared: dict[Any, list[int]] = {}
    for index, fake in enumerate(outputs):
        if index in owners:
            shared.setdefault((owners[index],), []).append(index)
        elif isinstance(fake, Fake) and not any(fake is each for each in inputs):
            key = _torch.storage_key(fake)
            if key not in tied:
                shared.setdefault(key, []).append(index)
    found: list[tuple[int, int]] = []
    for key, members in shared.items():
        if len(members) == 1 and key not in of_inputs:
            continue
        nodes = {index: _node(outputs[index]) for index in members}
        roots = {index: _root(node) for index, node in nodes.items()}
        first = None
        if key not in of_inputs:  # what detaches another one comes after it in the graph
            found_roots = frozenset(roots.values())
            first = next(node for node in nodes[members[0]].graph.nodes if node in found_roots)
        made: dict[Node, int] = {}
        for index in sorted(members, key=lambda index: (nodes[index] is not roots[index], index)):
            root = roots[index]
            if root is not first and root.target is torch.ops.aten.detach.default:
                found.append((index, made.setdefault(root, index)))
    return tuple(found)


def _node(fake: Fake) -> Node:
    """The node that made it, alone or among others."""
    node = fake.node
    return node[0] if isinstance(node, tuple) else node


def _root(node: Node) -> Node:
    """What autograd takes the value of a node for a view of."""
    while node.op == "call_function" and node.target is not torch.ops.aten.detach.default and node.args:
        source = written_node(node)
        if source is node and makes_view(node):
            source = node.args[0]
        if source is node or not isinstance(source, Node):
            break
        node = source
    return node
