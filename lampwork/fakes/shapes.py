"""Shape rules: what eager would return, as metadata. One rule per operator, in tables; nothing here computes data.

A rule takes an operator's arguments (fakes, numbers, lists) and returns a `Spec`, or a tuple of `Spec | None` for
operators with several results. Rules give eager's dtype, shape and STRIDES on the CPU; `tests/unit/fakes/
test_shapes.py` checks each against PyTorch's own operator samples. A rule that meets a case it does not know raises
`Unknown`, and the operator's meta kernel answers instead (slower, 20-400 us); so do operators without a rule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from math import prod as product
from typing import Any, NamedTuple

import torch

from lampwork import _torch
from lampwork.fakes.fake import Fake, Unsupported

Shape = tuple[int, ...]


class Spec(NamedTuple):
    """A result's metadata; the device is that of the arguments unless given."""

    shape: Shape
    strides: Shape
    dtype: torch.dtype
    device: torch.device | None = None


class Unknown(Exception):
    """The rule does not cover these arguments."""


#: Overload -> rule.
RULES: dict[Any, Callable[..., Any]] = {}


def rule(*names: str) -> Callable[[Callable], Callable]:
    """Registers a shape rule for overloads such as "add.Tensor" ("gelu" means "gelu.default")."""

    def register(function: Callable) -> Callable:
        for name in names:
            RULES[overload(name)] = function
        return function

    return register


def overload(name: str) -> Any:
    packet, _, which = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), which or "default")


# Strides ------------------------------------------------------------------------------------------


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
    """Whether a layout has no elements at all. Sizes that are symbols count as more."""
    for size in shape:
        if type(size) is int and size == 0:
            return True
    return False


def at_least_one(size: Any) -> Any:
    """What a dimension counts for in strides: one of size 0 counts as 1."""
    return size if exceeds_one(size) else 1


def same_sizes(left: Sequence[Any], right: Sequence[Any]) -> bool:
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
    """Strides of an NHWC (or NDHWC) tensor whose logical shape is NCHW (NCDHW)."""
    return permuted(shape, (0, *range(2, len(shape)), 1))


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
    dims = tensor.dim()
    if dims == 4:
        order: tuple[int, ...] = (1, 3, 2, 0)
    elif dims == 5:
        order = (1, 4, 3, 2, 0)
    else:
        return False
    shape, strides = tensor.size(), tensor.stride()
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


def broadcast(shapes: Sequence[Sequence[int]]) -> Shape:
    """The common shape. Raises eager's error when there is none."""
    dims = 0
    for shape in shapes:
        if len(shape) > dims:
            dims = len(shape)
    result = [1] * dims
    for shape in shapes:
        shift = dims - len(shape)
        for index, size in enumerate(shape):
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
    Inputs of another type than `common` are cast first, which closes gaps.
    """
    strides = [
        tensor.stride() if common is None or tensor.dtype == common or not tensor.dim() else preserved(tensor)
        for tensor in tensors
    ]
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
    for tensor, steps in zip(tensors, strides):
        sizes = tensor.size()
        shift = dims - len(sizes)
        row = [0] * dims
        for index in range(len(sizes)):
            if differ(sizes[index], 1) or not differ(shape[shift + index], 1):
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


# Types --------------------------------------------------------------------------------------------

_COMPLEX_OF = {torch.float16: torch.complex32, torch.bfloat16: torch.complex64, torch.float32: torch.complex64,
               torch.float64: torch.complex128}  # fmt: skip
_REAL_OF = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}


def real_dtype(dtype: torch.dtype) -> torch.dtype:
    return _REAL_OF.get(dtype, dtype)


def _category(dtype: torch.dtype) -> int:
    if dtype.is_complex:
        return 3
    if dtype.is_floating_point:
        return 2
    return 0 if dtype == torch.bool else 1


def scalar_dtype(value: Any) -> torch.dtype:
    kind = type(value)
    if kind is bool:
        return torch.bool
    if kind is int or kind is torch.SymInt:
        return torch.int64
    if kind is float:
        return torch.get_default_dtype()
    if kind is complex:
        return _COMPLEX_OF[torch.get_default_dtype()]
    raise Unknown


def promoted(operands: Sequence[Any]) -> torch.dtype:
    """`torch.result_type` of tensors and Python numbers.

    Tensors with dimensions win over 0-d ones, those over numbers.
    """
    tensor_type: torch.dtype | None = None
    zero_type: torch.dtype | None = None
    number_type: torch.dtype | None = None
    for operand in operands:
        if isinstance(operand, torch.Tensor):
            dtype = operand.dtype
            if operand.dim():
                tensor_type = (
                    dtype if tensor_type is None or tensor_type == dtype else torch.promote_types(tensor_type, dtype)
                )
            else:
                zero_type = dtype if zero_type is None or zero_type == dtype else torch.promote_types(zero_type, dtype)
        else:
            dtype = scalar_dtype(operand)
            number_type = dtype if number_type is None else torch.promote_types(number_type, dtype)
    return _combine(_combine(tensor_type, zero_type), number_type)  # type: ignore[return-value]


def _combine(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    if higher is None:
        return lower
    if lower is None or higher == lower:
        return higher
    if _category(lower) > _category(higher):
        return torch.promote_types(higher, lower)
    return higher


def as_float(dtype: torch.dtype) -> torch.dtype:
    """Integers and bool become the default dtype."""
    return dtype if dtype.is_floating_point or dtype.is_complex else torch.get_default_dtype()


def wrap_dim(dim: int, dims: int) -> int:
    """A non-negative dimension. Raises eager's error outside of [-dims, dims)."""
    limit = dims if dims else 1
    if not -limit <= dim < limit:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-limit}, {limit - 1}], but got {dim})")
    return dim + limit if dim < 0 else dim


def wrap_dims(dims: Any, count: int) -> tuple[int, ...]:
    """Reduction dimensions, all when None or empty."""
    if dims is None:
        return tuple(range(count))
    if isinstance(dims, int):
        dims = (dims,)
    if not dims:
        return tuple(range(count))
    wrapped = tuple(wrap_dim(dim, count) for dim in dims)
    if len(set(wrapped)) != len(wrapped):
        raise Unknown
    return wrapped


# Answering an operator ----------------------------------------------------------------------------


def infer(op: Any, args: tuple, kwargs: dict) -> Any:
    """What `op` returns on fakes, as new fakes over new storages. For operators whose results alias nothing.

    Raises eager's own error for arguments that eager refuses, `Unsupported` for operators without shape rule and
    meta kernel.
    """
    function = RULES.get(op)
    if function is not None:
        try:
            return materialize(function(*args, **kwargs), args, kwargs)
        except Unknown:
            pass
        except (TypeError, AttributeError, KeyError, ValueError) as error:
            # The rule met arguments of a kind it was not written for.
            if _STRICT_RULES:
                raise AssertionError(f"shape rule of {op}: {error}") from error
    return infer_by_meta_kernel(op, args, kwargs)


#: Tests set this: a rule that fails by accident must not hide behind the meta kernel.
_STRICT_RULES = False


def materialize(result: Any, args: tuple, kwargs: dict) -> Any:
    """Fakes for a rule's result."""
    if type(result) is Spec:
        device = result.device
        if device is None:
            device = device_of(args, kwargs)
        return _torch.tensor_without_memory(Fake, result.shape, result.strides, result.dtype, device)
    if result is None or type(result) is int:
        return result
    return type(result)(materialize(each, args, kwargs) for each in result)


_CPU = torch.device("cpu")


def exact_device(device: Any) -> torch.device:
    """`device` with its index: "cuda" is the current CUDA device."""
    exact = device if type(device) is torch.device else torch.device(device)
    if exact.type == "cuda" and exact.index is None:
        return torch.device("cuda", _torch.current_cuda_device())
    return exact


def device_of(args: tuple, kwargs: dict) -> torch.device:
    """The common device of the tensor arguments (a 0-d CPU tensor follows the others), else the `device` argument."""
    found = None
    for each in tensors_in(args):
        device = each.device
        if found is None or (found == _CPU and device != _CPU):
            found = device
        if device == _CPU and found == _CPU and each.dim():
            break
    if found is None:
        found = kwargs.get("device")
    return exact_device(found) if found is not None else _CPU


def tensors_in(values: Iterable[Any]) -> Iterable[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)


def infer_by_meta_kernel(op: Any, args: tuple, kwargs: dict) -> Any:
    """`infer` through the operator's meta kernel on tensors of device "meta"."""
    name = op.name()
    if not _torch.has_meta_kernel(name):
        raise Unsupported(f"{op} says nothing about the shape of its result (it has no meta kernel)")
    _torch.keep_dynamo_unloaded()
    device = device_of((*args, *kwargs.values()), kwargs)
    copies: dict[int, torch.Tensor] = {}
    in_numbers = False

    def to_meta(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) not in copies:
                size, stride = value.size(), value.stride()
                if in_numbers:
                    size, stride = torch.Size(map(int, size)), tuple(map(int, stride))
                copies[id(value)] = torch.empty_strided(size, stride, dtype=value.dtype, device="meta")
            return copies[id(value)]
        if in_numbers and isinstance(value, torch.SymInt):
            return int(value)
        if isinstance(value, (list, tuple)):
            return type(value)(to_meta(each) for each in value)
        if isinstance(value, torch.device):
            return torch.device("meta")
        return value

    kwargs = {**kwargs, **_on_no_device(op, kwargs)}
    try:
        try:
            result = op(*to_meta(args), **{key: to_meta(value) for key, value in kwargs.items()})
        except RuntimeError as error:
            if "concrete integers" not in str(error):
                raise
            in_numbers = True  # its native code knows nothing of symbols: the sizes are fixed
            copies.clear()
            result = op(*to_meta(args), **{key: to_meta(value) for key, value in kwargs.items()})
    except NotImplementedError as error:
        raise Unsupported(f"{op}: {error}") from error
    except RuntimeError as error:
        if op.namespace not in ("aten", "prims") and "fake impl" in str(error):
            remedy = "Tell what its result looks like with register_fake."
            raise Unsupported(f"{op}, a custom operator without a fake", remedy, "custom-operator") from error
        raise
    return _from_meta(result, device)


def _on_no_device(op: Any, kwargs: dict) -> dict[str, torch.device]:
    """For an operator that makes a tensor where it is told to: not on the CPU, where it would compute and draw."""
    if kwargs.get("device") is None and any(each.name == "device" for each in op._schema.arguments):
        return {"device": torch.device("meta")}
    return {}


def _from_meta(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            raise Unsupported(f"a tensor of layout {value.layout} is made", id="tensor-layout")
        return _torch.tensor_without_memory(Fake, tuple(value.size()), value.stride(), value.dtype, device)
    if isinstance(value, (list, tuple)):
        return type(value)(_from_meta(each, device) for each in value)
    return value
