"""Indices of tensors that contents, or the host, decide: `x[i]`, `x[1:, int(at)]`.

    x[i, 1:]        ->        x[:, 1:].select(0, i)

The index is a size that is not known yet. That it lies inside of the tensor, and counts from its beginning, is checked
when the program runs; where that is not so, the call runs eagerly.
"""

from __future__ import annotations

from typing import Any

import torch

from lampwork.capture.outside.overlay import Break
from lampwork.capture.record.fake import Fake
from lampwork.fakes.symbolic import by_contents, size_of


def has_found_index(key: Any) -> bool:
    """Whether an index of a tensor names an element by an integer that is not known yet."""
    return any(map(by_contents, key)) if type(key) is tuple else by_contents(key)


def part_at(recorder: Any, tensor: Fake, key: Any) -> Any:
    """`tensor[key]`, a view. Raises `Break` for an index with tensors or lists in it, which gathers."""
    parts = key if type(key) is tuple else (key,)
    consumed = sum(each is not None and each is not ... for each in parts)
    gathers = not all(each is None or each is ... or type(each) in (int, slice, torch.SymInt) for each in parts)
    if gathers or type(tensor) is not Fake or consumed > tensor.dim():
        raise Break("tensor-argument", "a tensor is indexed with tensors and with a number that is not known")
    found: list[tuple[int, Any]] = []
    place = 0
    for each in parts:
        if by_contents(each):
            found.append((place, each))
        if each is ...:
            place += tensor.dim() - consumed
        elif each is None or type(each) is slice or by_contents(each):
            place += 1
    known = [int(each) if type(each) is torch.SymInt and not by_contents(each) else each for each in parts]
    view = tensor[tuple([slice(None) if by_contents(each) else each for each in known])]
    for place, index in reversed(found):
        size = view.size(place)
        recorder.sizes.expect(size_of(index), ">=", 0)
        recorder.sizes.expect(size_of(index), "<", size_of(size))
        view = torch.select(view, place, index)
    return view
