"""Sizes that a user marked, with `lampwork.mark_dynamic` or with PyTorch's `mark_dynamic` and its like."""

from __future__ import annotations

from typing import NamedTuple

import torch


class SizeMarks(NamedTuple):
    """What was said of a tensor's dimensions. `dynamic`: (least, largest) by dimension, None where not said; `maybe`:
    dynamic if that costs nothing; `static`: dimensions that stay as they are."""

    dynamic: dict[int, tuple[int | None, int | None]]
    maybe: frozenset[int]
    static: frozenset[int]

    def is_static(self, axis: int) -> bool:
        return axis in self.static


_UNMARKED = SizeMarks({}, frozenset(), frozenset())


def size_marks(tensor: torch.Tensor) -> SizeMarks:
    """The marks of `lampwork.mark_dynamic` and of `torch._dynamo.mark_dynamic` and its like: attributes of the tensor
    object (`_dynamo_dynamic_indices`, `_dynamo_dynamic_range`, `_dynamo_weak_dynamic_indices`,
    `_dynamo_static_indices`, and those of `mark_unbacked`, whose sizes are symbols like others here)."""
    attributes = tensor.__dict__
    if not attributes:
        return _UNMARKED
    dynamic: dict[int, tuple[int | None, int | None]] = dict.fromkeys(
        attributes.get("_dynamo_dynamic_indices") or (), (None, None)
    )
    for each in attributes.get("_dynamo_dynamic_range") or ():
        dynamic[each.dim] = (each.min, each.max)
    dynamic.update(attributes.get("_lampwork_dynamic") or {})
    static = {*(attributes.get("_dynamo_static_indices") or ()), *(attributes.get("_lampwork_static") or ())}
    dynamic.update(dict.fromkeys(attributes.get("_dynamo_strict_unbacked_indices") or (), (None, None)))
    weak = attributes.get("_dynamo_weak_dynamic_indices") or ()
    maybe = frozenset({*weak, *(attributes.get("_dynamo_unbacked_indices") or ())})
    for axis in attributes.get("_lampwork_dynamic") or ():
        static.discard(axis)
    return SizeMarks(dynamic, maybe, frozenset(static))
