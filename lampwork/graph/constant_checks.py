"""Which operators that raise where contents do not fit cannot: those that read constants alone, and were run.

    %zeros = zeros([1, 1, 1, 2])                          `flex_attention` makes the lists of a mask that masks nothing,
    %put = index_put(%zeros, [%arange, %where], %ones)    each time it is called without one

Eager raises by what indices hold. Where that is the same in every run, one run tells. Only small tensors are made.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from lampwork import _torch
from lampwork.fakes.fake import Fake
from lampwork.graph.build import is_random

#: Operators that are run, and elements of a result, at most.
_LONGEST, _LARGEST = 64, 1 << 10


def is_known_to_fit(node: Node) -> bool:
    """Whether `node` was run on the constants that it is made of, and raised nothing."""
    order = _constant_inputs(node)
    if order is None:
        return False
    values: dict[Node, Any] = {}

    def value(argument: object) -> Any:
        if isinstance(argument, Node):
            return values[argument]
        if isinstance(argument, (list, tuple)):
            return type(argument)(map(value, argument))
        return torch.device("cpu") if isinstance(argument, torch.device) else argument

    try:
        with _torch.kernels_only():
            for each in order:
                kwargs = {name: value(argument) for name, argument in each.kwargs.items()}
                values[each] = each.target(*map(value, each.args), **kwargs)
    except Exception:
        return False
    return True


def _constant_inputs(node: Node) -> list[Node] | None:
    """The node and all that it is computed from, in order; None if that is long, or more than constants."""
    found: set[Node] = set()
    pending = [node]
    while pending:
        each = pending.pop()
        if each in found:
            continue
        fake = each.meta.get("val")
        if each.op != "call_function" or not _torch.is_operator(each.target) or is_random(each):
            return None
        if not isinstance(fake, Fake) or not all(isinstance(size, int) for size in fake.size()):
            return None
        if fake.numel() > _LARGEST:
            return None
        found.add(each)
        if len(found) > _LONGEST:
            return None
        pending.extend(each.all_input_nodes)
    return [each for each in node.graph.nodes if each in found]
