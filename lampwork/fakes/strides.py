"""Layouts: which strides eager gives a fresh tensor, and questions about them that symbolic sizes can answer."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from math import prod as product
from typing import Any

import torch

#: Sizes may be `torch.SymInt`, which the checker takes for an int.
Shape = tuple[int, ...]
#: What operators take as a number; bool is an int.
Scalar = int | float | complex


def exceeds_one(size: Any) -> bool:
    """Whether a dimension steps over anything."""
    return size > 1 if type(size) is int else size.node.in_layout(">", 1)


def differ(left: Any, right: Any) -> bool:
    """Whether two strides differ."""
    if type(left) is int:
        return left != right if type(right) is int else right.node.in_layout("!=", left)
    return left.node.in_layout("!=", right if type(right) is int else right.node.value)


def less(left: Any, right: Any) -> bool:
    """Whether a stride is less than another."""
    if type(left) is int:
        return left < right if type(right) is int else right.node.in_layout(">", left)
    return left.node.in_layout("<", right if type(right) is int else right.node.value)


def surely_same(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Whether two shapes are equal. Where contents decide, whatever they are: nothing is assumed."""
    if len(left) != len(right):
        return False
    for one, other in zip(left, right):
        if type(one) is int and type(other) is int:
            if one != other:
                return False
        else:
            node = one.node if type(one) is torch.SymInt else other.node
            if not node.equals_surely(*[each if type(each) is int else each.node.value for each in (one, other)]):
                return False
    return True


def has_zero(shape: Iterable[Any]) -> bool:
    """Whether a layout has no elements at all. Sizes that contents decide count as more."""
    for size in shape:
        if size == 0 if type(size) is int else size.node.in_layout("==", 0):
            return True
    return False


def at_least_one(size: int) -> Any:
    """What a dimension counts for in strides: one of size 0 counts as 1."""
    return size if exceeds_one(size) else 1


def same_sizes(left: Sequence[int], right: Sequence[object]) -> bool:
    """Whether two shapes are equal. Symbolic sizes of shapes of different length are not compared."""
    return len(left) == len(right) and left == right


def contiguous(shape: Iterable[int]) -> Shape:
    """Row-major strides. A dimension of size 0 counts as 1, as in eager."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape if isinstance(shape, (tuple, list)) else tuple(shape)):
        strides.append(step)
        step *= size if exceeds_one(size) else 1
    strides.reverse()
    return tuple(strides)


def channels_last(shape: Sequence[int]) -> Shape:
    """Strides of an NHWC (or NDHWC) tensor whose logical shape is NCHW (NCDHW). Unlike those of other orders, they are
    products of all sizes, 0 included."""
    strides = [0] * len(shape)
    step = 1
    for dim in (1, *range(len(shape) - 1, 1, -1), 0):
        strides[dim] = step
        step *= shape[dim]
    return tuple(strides)


def permuted(shape: Sequence[int], order: Sequence[int]) -> Shape:
    """Dense strides with `order[0]` the outermost dimension."""
    strides = [0] * len(shape)
    step = 1
    for dim in reversed(order):
        strides[dim] = step
        step *= at_least_one(shape[dim])
    return tuple(strides)


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    if has_zero(shape):
        return True
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if exceeds_one(size) and differ(stride, expected):
            return False
        expected *= size
    return True


def overlap(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether several elements may be one memory location, as far as strides that are numbers say: a dimension is
    repeated, or its elements lie closer to each other than those of the dimensions below reach."""
    if has_zero(shape):
        return False
    steps = [(stride, size) for size, stride in zip(shape, strides) if exceeds_one(size)]
    if any(type(stride) is int and stride == 0 for stride, _ in steps):
        return True
    if any(type(stride) is not int for stride, _ in steps):
        return False
    reach = 1
    for stride, size in sorted(steps, key=lambda step: step[0]):
        if stride < reach:
            return True
        reach += (size - 1) * stride
    return False


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Non-overlapping and dense: a permutation of a contiguous tensor."""
    if has_zero(shape) or is_contiguous(shape, strides):
        return True
    pairs = [(stride, size) for size, stride in zip(shape, strides) if exceeds_one(size)]
    pairs.sort(key=None if all(type(each) is int for pair in pairs for each in pair) else _by_stride)
    expected = 1
    for stride, size in pairs:
        if differ(stride, expected):
            return False
        expected *= size
    return True


@functools.cmp_to_key
def _by_stride(one: tuple, other: tuple) -> int:
    """Sorts (stride, size)."""
    for left, right in zip(one, other):
        if differ(left, right):
            return -1 if less(left, right) else 1
    return 0


def is_channels_last(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """`is_contiguous(memory_format=channels_last)` of a 4-d tensor."""
    if len(shape) != 4:
        return False
    expected = 1
    for dim in (1, 3, 2, 0):
        if exceeds_one(shape[dim]):
            if differ(strides[dim], expected):
                return False
            expected *= shape[dim]
    return True


def suggests_channels_last(tensor: torch.Tensor) -> bool:
    """`suggest_memory_format() == channels_last`: what convolutions, pools and batch norm go by."""
    return strides_suggest_channels_last(tensor.size(), tensor.stride())


def strides_suggest_channels_last(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """The same of a tensor of this shape and these strides."""
    dims = len(shape)
    if dims == 4:
        order: tuple[int, ...] = (1, 3, 2, 0)
    elif dims == 5:
        order = (1, 4, 3, 2, 0)
    else:
        return False
    if strides[1] == 0:
        return False
    least = 0
    for dim in order:
        if has_zero(shape[dim : dim + 1]):
            return False
        if less(strides[dim], least):
            return False
        if dim == 0 and least == strides[1]:
            return False
        least = strides[dim]
        if exceeds_one(shape[dim]):
            least *= shape[dim]
    return True


def in_format_of(tensor: torch.Tensor, shape: Sequence[int]) -> Shape:
    """Strides of a fresh result with `tensor`'s suggested memory format."""
    return channels_last(shape) if suggests_channels_last(tensor) else contiguous(shape)


def preserved(tensor: torch.Tensor) -> Shape:
    """Strides of `empty_like(tensor, memory_format=preserve_format)`."""
    return preserved_of(tensor.size(), tensor.stride())


def preserved_of(shape: Sequence[int], strides: Sequence[int]) -> Shape:
    """As `preserved`, of a tensor with this shape and these strides."""
    if is_dense(shape, strides):
        return tuple(strides)
    return contiguous(shape) if len(shape) < 2 else sorted_strides([list(strides)], tuple(shape))


def in_memory_format(tensor: torch.Tensor, memory_format: torch.memory_format | None) -> Shape:
    if memory_format is None or memory_format == torch.preserve_format:
        return preserved(tensor)
    if memory_format == torch.contiguous_format:
        return contiguous(tensor.size())
    return channels_last(tensor.size())


def expect_sizes(what: str, sizes: Sequence[object], wanted: Sequence[object]) -> None:
    """Raises where they are not the same: loops of ours go over `wanted`, and read at each of its places. Eager has the
    last word, in words of its own."""
    if not surely_same(sizes, wanted) and tuple(sizes) != tuple(wanted):
        raise RuntimeError(f"{what} has sizes {list(sizes)}, where {list(wanted)} are expected")


def check_expands(sizes: Sequence[int], wanted: Sequence[int]) -> None:
    """Raises, as eager does, where a tensor of `sizes` cannot be expanded to `wanted`, which is written."""
    if surely_same(sizes, wanted):
        return
    added = len(wanted) - len(sizes)
    if added < 0 or any(
        differ(size, 1) and not surely_same((size,), (other,)) and size != other
        for size, other in zip(sizes, wanted[added:])
    ):
        raise RuntimeError(
            f"output with shape {list(wanted)} doesn't match the broadcast shape of a source of shape {list(sizes)}"
        )


def broadcast(shapes: Sequence[Sequence[int]]) -> Shape:
    """The common shape. Raises eager's error when there is none."""
    dims = 0
    for shape in shapes:
        if len(shape) > dims:
            dims = len(shape)
    result = [1] * dims
    for shape in shapes:
        shift = dims - len(shape)
        for index in range(len(shape) - 1, -1, -1):  # eager names the last dimension that does not fit
            size = shape[index]
            if differ(size, 1):
                current = result[shift + index]
                if not differ(current, 1):
                    result[shift + index] = size
                elif current != size:
                    raise RuntimeError(
                        f"The size of tensor a ({current}) must match the size of tensor b ({size}) "
                        f"at non-singleton dimension {shift + index}"
                    )
    return tuple(result)


def iterated(tensors: Sequence[torch.Tensor], shape: Shape, all_same: bool, common: torch.dtype | None = None) -> Shape:
    """Strides that eager's TensorIterator gives a fresh output of an elementwise operator on `tensors`.

    `all_same`: all operands have one shape. Follows ATen/TensorIterator.cpp: contiguous and channels-last inputs give
    such outputs; equal dense strides are kept; else dimensions are sorted by the inputs' strides, first input first.
    On a CPU inputs of another type than `common` are cast first, which closes gaps; on a GPU they are cast as they are
    read.
    """
    strides = [
        preserved(tensor) if tensor.is_cpu and common not in (None, tensor.dtype) and tensor.dim() else tensor.stride()
        for tensor in tensors
    ]
    return iterated_of([tensor.size() for tensor in tensors], strides, shape, all_same)


def iterated_of(sizes: Sequence[Any], strides: Sequence[Any], shape: Shape, all_same: bool) -> Shape:
    """As `iterated`, of operands with these sizes and strides, which are not cast."""
    if all_same:
        first = strides[0]
        same = True
        for other in strides:
            if any(map(differ, other, first)):
                same = False
                break
        if same:
            if is_contiguous(shape, first):
                return contiguous(shape)
            if is_channels_last(shape, first):
                return channels_last(shape)
            if is_dense(shape, first):
                return first
        elif all(is_contiguous(shape, each) for each in strides):
            return contiguous(shape)
        elif all(is_channels_last(shape, each) for each in strides):
            return channels_last(shape)
    dims = len(shape)
    if dims < 2:
        return contiguous(shape)
    table = []
    for size, steps in zip(sizes, strides):
        shift = dims - len(size)
        row = [0] * dims
        for index in range(len(size)):
            if differ(size[index], 1) or not differ(shape[shift + index], 1):
                row[shift + index] = steps[index]
        table.append(row)
    return sorted_strides(table, shape)


def sorted_strides(table: list[list[int]], shape: Shape) -> Shape:
    """Strides of a fresh output whose dimensions are ordered by the operands' strides (one row each, 0: broadcast)."""
    dims = len(shape)
    order = list(range(dims - 1, -1, -1))
    for start in range(1, dims):
        moving = start
        for other in range(start - 1, -1, -1):
            comparison = _compare(table, shape, order[other], order[moving])
            if comparison > 0:
                order[other], order[moving] = order[moving], order[other]
                moving = other
            elif comparison < 0:
                break
    order.reverse()
    if order == list(range(dims)):
        return contiguous(shape)
    if has_zero(shape):  # counted as it is here, alone of all
        return tuple(product(shape[dim] for dim in order[order.index(each) + 1 :]) for each in range(dims))
    return permuted(shape, order)


def _compare(table: list[list[int]], shape: Shape, left: int, right: int) -> int:
    """1: dimension `left` goes outside `right`; -1: inside; 0: no operand says."""
    for row in table:
        first, second = row[left], row[right]
        if any(type(each) is int and each == 0 for each in (first, second)):
            continue
        if less(first, second):
            return -1
        if less(second, first):
            return 1
        if less(shape[right], shape[left]):
            return 1
    return 0
