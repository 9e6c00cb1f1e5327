"""Which recorded tensors are in one memory, and whether two in one storage have elements in common.

    x[:, :4] and x[:, 4:]       False: rows are longer than what each takes of them
    x[0::2] and x[1::2]         False: all steps are even, the distance is odd
    x[1:] and x[:-1]            True

Sizes that vary are compared as others are, so what is found out holds under the guards that this adds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from lampwork import _torch
from lampwork.fakes.operators import operator
from lampwork.fakes.shapes import surely_same

#: So many elements are compared one by one where nothing else tells.
_FEW = 1 << 12

#: (stride, extent) of the dimensions of more than one element, in bytes.
_Dims = list[tuple[Any, Any]]


def memory_owner(node: Node) -> Node:
    """The node whose result `node` is a view of (itself if it is none)."""
    while node.op == "call_function":
        if node.target is _torch.getitem:
            if operator(node.args[0].target).kind != "view":
                return node
        elif not _torch.is_operator(node.target):
            return node
        elif operator(node.target).kind != "view" and node.target is not torch.ops.aten._unsafe_view.default:
            return node
        node = node.args[0]
    return node


def is_same_view(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether both are the same elements in the same order."""
    return left is right or (
        left.dtype == right.dtype
        and _torch.storage_key(left) == _torch.storage_key(right)
        and surely_same(left.size(), right.size())
        and surely_same(left.stride(), right.stride())
        and surely_same((left.storage_offset(),), (right.storage_offset(),))
    )


def share_elements(left: torch.Tensor, right: torch.Tensor) -> bool | None:
    """Whether some byte belongs to both; None where that is not found out."""
    if _torch.storage_key(left) != _torch.storage_key(right) or not left.numel() or not right.numel():
        return False
    begins = [each.storage_offset() * each.element_size() for each in (left, right)]
    dims = [_dims(each) for each in (left, right)]
    if begins[1] < begins[0]:
        begins, dims = begins[::-1], dims[::-1]
    return _meet(begins[1] - begins[0], dims[0], dims[1])


def _dims(tensor: torch.Tensor) -> _Dims:
    width = tensor.element_size()
    found = [(step * width, extent) for step, extent in zip(tensor.stride(), tensor.size()) if extent > 1 and step > 0]
    return found if width == 1 else [*found, (1, width)]


def _span(dims: _Dims) -> Any:
    """How many bytes lie from the first to the last, both included."""
    return 1 + sum((extent - 1) * step for step, extent in dims)


def _meet(distance: object, first: _Dims, second: _Dims) -> bool | None:
    """Whether bytes meet of one that begins at 0 and one that begins at `distance`, which is not negative."""
    if distance >= _span(first):
        return False
    if not first or not second:
        one = first or second
        if not one:
            return bool(distance == 0)
    largest: Any = 1
    for step, _ in (*first, *second):
        if step > largest:
            largest = step
    if largest == 1:
        return True  # of two ranges without gaps, one begins inside of the other
    inner = [[each for each in dims if not each[0] == largest] for dims in (first, second)]
    rows = [math.prod([extent for step, extent in dims if step == largest]) for dims in (first, second)]
    if any(sum(1 for step, _ in dims if step == largest) > 1 for dims in (first, second)):
        return _one_by_one(distance, first, second)
    row, rest = distance // largest, distance % largest
    if _span(inner[0]) > largest or rest + _span(inner[1]) > largest:
        return _one_by_one(distance, first, second)
    if row >= rows[0]:
        return False
    return _meet(rest, inner[0], inner[1])


def _one_by_one(distance: Any, first: _Dims, second: _Dims) -> bool | None:
    values = (distance, *itertools.chain(*first, *second))
    if not all(type(each) is int for each in values):
        return None
    if max(math.prod([extent for _, extent in dims]) for dims in (first, second)) > _FEW:
        return None
    return not _places(0, first).isdisjoint(_places(distance, second))


def _places(begin: int, dims: _Dims) -> set[int]:
    found = {begin}
    for step, extent in dims:
        found = {place + step * number for place in found for number in range(extent)}
    return found


def is_one_memory(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether tensors that overlap are views of one row of elements, of the smallest of their element types: elements
    are what lies in memory, and those of larger types begin at multiples of their size from the first one on."""
    if all(each.dtype == tensors[0].dtype for each in tensors):
        return True
    if any(each.dtype is torch.bool or each.is_conj() or each.is_neg() for each in tensors):
        return False
    first = min(each.storage_offset() * each.itemsize for each in tensors)
    return all(first % each.itemsize == 0 for each in tensors)
