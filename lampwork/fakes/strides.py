"""Layouts: which strides eager gives a fresh tensor, and questions about them that symbolic sizes can answer."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
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


def equal_for_all(left: Any, right: Any) -> bool:
    """Whether two sizes or strides are equal in every call that the guards let pass: asks nothing."""
    if type(left) is int:
        return left == right if type(right) is int else right.node.known("==", left) is True
    return left.node.known("==", right if type(right) is int else right.node.value) is True


def _differ_for_all(left: Any, right: Any) -> bool:
    """Whether two strides differ in every call that the guards let pass: asks nothing."""
    if type(left) is int:
        return left != right if type(right) is int else right.node.known("!=", left) is True
    return left.node.known("!=", right if type(right) is int else right.node.value) is True


def at_least_for_all(left: Any, right: Any) -> bool:
    """Whether the first is no less than the second in every call that the guards let pass: asks nothing."""
    if type(left) is int:
        return left >= right if type(right) is int else right.node.known("<=", left) is True
    return left.node.known(">=", right if type(right) is int else right.node.value) is True


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
    if any(type(each) is not int for each in (*left, *right)) and any(map(_differ_for_all, left, right)):
        return False  # whatever the others are
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


def at_least_one(size: Any) -> Any:
    """What a dimension counts for in strides: one of size 0 counts as 1."""
    return size if at_least_for_all(size, 1) or exceeds_one(size) else 1


def _by_contents(size: Any) -> bool:
    """Whether the contents of a tensor decide the size: eager's layout is asked for as it is then, question by
    question, and an answer holds for a class of sizes."""
    return type(size) is not int and size.node.sizes.by_contents(size.node.value)


def known_same(shapes: Sequence[Sequence[Any]]) -> bool | None:
    """Whether all shapes are one: what `surely_same` says of each beside the first, but None where that depends on
    whether a size is 1. Asks other questions."""
    first = shapes[0]
    if any(map(_by_contents, itertools.chain(*shapes))):
        return all(surely_same(other, first) for other in shapes[1:])
    depends = False
    for other in shapes[1:]:
        if len(other) != len(first):
            return False
        pairs = [pair for pair in zip(first, other) if not equal_for_all(*pair)]
        if any(_differ_for_all(*pair) for pair in pairs):
            return False
        ones = [pair for pair in pairs if 1 in [each for each in pair if type(each) is int]]
        depends = depends or bool(ones)
        if len(ones) < len(pairs) and not surely_same(*zip(*[pair for pair in pairs if pair not in ones])):
            return False
    return None if depends else True


def same_sizes(left: Sequence[int], right: Sequence[object]) -> bool:
    """Whether two shapes are equal. Symbolic sizes of shapes of different length are not compared."""
    return len(left) == len(right) and left == right


def contiguous(shape: Iterable[int]) -> Shape:
    """Row-major strides. A dimension of size 0 counts as 1, as in eager."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape if isinstance(shape, (tuple, list)) else tuple(shape)):
        strides.append(step)
        step *= at_least_one(size)
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
        if _steps_elsewhere(size, stride, expected):
            return False
        expected *= size
    return True


def _steps_elsewhere(size: Any, stride: Any, expected: Any) -> bool:
    """Whether a dimension steps over something, and not by `expected`. Where it steps by that anyway, nothing is asked
    of its size."""
    return not equal_for_all(stride, expected) and exceeds_one(size) and differ(stride, expected)


def overlap(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether several elements may be one memory location: a dimension is repeated, or its elements lie closer to each
    other than those of the dimensions below reach."""
    if has_zero(shape):
        return False
    steps = [(stride, size) for size, stride in zip(shape, strides) if exceeds_one(size)]
    if any(type(stride) is int and stride == 0 for stride, _ in steps):
        return True
    is_known = all(type(each) is int for step in steps for each in step)
    reach: Any = 1
    for stride, size in sorted(steps, key=(lambda step: step[0]) if is_known else _by_stride):
        if less(stride, reach):
            return True
        reach = reach + (size - 1) * stride
    return False


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Non-overlapping and dense: a permutation of a contiguous tensor."""
    if has_zero(shape):
        return True
    known = _known_dense(shape, strides)
    if known is not None:
        return known
    if is_contiguous(shape, strides):
        return True
    pairs = [(stride, size) for size, stride in zip(shape, strides) if exceeds_one(size)]
    pairs.sort(key=None if all(type(each) is int for pair in pairs for each in pair) else _by_stride)
    expected = 1
    for stride, size in pairs:
        if differ(stride, expected):
            return False
        expected *= size
    return True


def _known_dense(shape: Sequence[Any], strides: Sequence[Any]) -> bool | None:
    """`is_dense` for all sizes that the guards let pass; None where it depends on them. Asks nothing."""
    left = [(stride, size) for size, stride in zip(shape, strides) if not equal_for_all(size, 1)]
    expected: Any = 1
    while left:
        inside = [index for index, (stride, _) in enumerate(left) if equal_for_all(stride, expected)]
        if not inside:
            is_outside = all(_differ_for_all(stride, expected) for stride, _ in left)
            return False if is_outside and any(at_least_for_all(size, 2) for _, size in left) else None
        if len(inside) > 1 or not at_least_for_all(left[inside[0]][1], 1):
            return None
        expected = expected * left.pop(inside[0])[1]
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
        if _steps_elsewhere(shape[dim], strides[dim], expected):
            return False
        expected *= at_least_one(shape[dim])
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
    return fresh_in_format(tensor.size(), memory_format)


def fresh_in_format(shape: Sequence[int], memory_format: torch.memory_format) -> Shape:
    """Strides of a fresh tensor in a format that is told. Raises eager's error where it has another number of
    dimensions than the format."""
    dims = _DIMS_OF_FORMATS.get(memory_format)
    if dims is None:
        return contiguous(shape)
    if len(shape) != dims:
        name = str(memory_format).removeprefix("torch.")
        raise RuntimeError(f"required rank {dims} tensor to use {name} format")
    return channels_last(shape)


_DIMS_OF_FORMATS = {torch.channels_last: 4, torch.channels_last_3d: 5}


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
            current = result[shift + index]
            if type(current) is int and current == 1:
                result[shift + index] = size
            elif not _seen_equal(size, current) and differ(size, 1):
                if not differ(current, 1):
                    result[shift + index] = size
                elif current != size:
                    raise RuntimeError(
                        f"The size of tensor a ({current}) must match the size of tensor b ({size}) "
                        f"at non-singleton dimension {shift + index}"
                    )
    return tuple(result)


def _seen_equal(left: Any, right: Any) -> bool:
    """Whether two sizes are equal. Of those that are 1 in the call at hand it is not asked, as these may be of any
    size beside each other; nor of what contents decide."""
    if type(left) is int and type(right) is int:
        return left == right
    if equal_for_all(left, right):
        return True
    node = left.node if type(left) is torch.SymInt else right.node
    return node.seen_equal(*[each if type(each) is int else each.node.value for each in (left, right)])


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
    return sorted_for_ones(
        sizes, shape, lambda one: [steps_in(shape, *operand, one) for operand in zip(sizes, strides)], shape
    )


def sorted_for_ones(
    sizes: Sequence[Any], common: Shape, table: Callable[[tuple[int, bool] | None], list[list[Any]]], shape: Shape
) -> Shape:
    """`sorted_strides` of a table with rows of operands of `sizes`, which are broadcast to `common`.

    Where an operand of size 1 lies beside a size that may be 1, eager broadcasts it or not. Mostly the result is the
    same; then nothing is asked. `table(one)` makes the table; of `one`, a dimension of `common` and whether its size
    is 1, nothing need be asked.
    """
    unsure = [dim for dim in range(len(common)) if _may_stretch(dim, common, sizes)]
    if len(unsure) == 1:
        result, other = (sorted_strides(table((unsure[0], is_one)), shape) for is_one in (False, True))
        if all(map(equal_for_all, result, other)):
            return result
    return sorted_strides(table(None), shape)


def _may_stretch(dim: int, common: Shape, sizes: Sequence[Any]) -> bool:
    """Whether an operand is of size 1 in a dimension of a result that may be, too, and may be of more."""
    wanted: Any = common[dim]
    if type(wanted) is int or _by_contents(wanted) or wanted.node.known("!=", 1) is not None:
        return False
    own = (size[dim - len(common)] for size in sizes if len(size) >= len(common) - dim)
    return any(type(each) is int and each == 1 for each in own)


def steps_in(
    common: Shape, size: Sequence[Any], strides: Sequence[Any], one: tuple[int, bool] | None = None
) -> list[Any]:
    """An operand's strides in the dimensions of a result of shape `common`, 0 where it is broadcast. `one`: a dimension
    and whether its size is 1."""
    shift = len(common) - len(size)
    row = [0] * len(common)
    for index, (own, step) in enumerate(zip(size, strides)):
        place = shift + index
        if one is not None and place == one[0]:
            is_kept = one[1] or type(own) is not int or own != 1
        else:
            is_kept = equal_for_all(own, common[place]) or differ(own, 1) or not differ(common[place], 1)
        row[place] = step if is_kept else 0
    return row


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
