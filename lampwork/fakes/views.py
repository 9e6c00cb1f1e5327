"""Views of tensors whose sizes, strides or offset are symbolic: PyTorch's view kernels take plain numbers only.

`view(op, args, kwargs)` answers a view operator from expressions; the result shares the argument's memory in the sense
of `_torch.storage_key`. Questions about sizes (`is this dimension 1?`) are asked of the symbols, which notes guards. An
operator without a rule here is run by its kernel on concrete numbers: the symbols involved are specialised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch

from lampwork import _torch
from lampwork.fakes.fake import DataDependent, Fake, fake_like_view
from lampwork.fakes.shapes import (
    COMPLEX_OF,
    contiguous,
    differ,
    is_contiguous,
    less,
    real_dtype,
    surely_same,
    wrap_dim,
)
from lampwork.fakes.strides import at_least_for_all, equal_for_all
from lampwork.fakes.symbolic import are_sizes, by_contents

aten = torch.ops.aten
SymInt = torch.SymInt


class Layout(NamedTuple):
    """Where the elements of a view lie; `offset` in elements from the start of the storage. `dtype`: where it is not
    that of the memory's owner."""

    shape: Sequence[Any]
    strides: Sequence[Any]
    offset: Any
    dtype: torch.dtype | None = None


def has_symbols(value: Any) -> bool:
    """Whether a tensor's metadata, or a number anywhere in an argument, is symbolic."""
    kind = type(value)
    if kind is SymInt:
        return True
    if isinstance(value, torch.Tensor):
        for each in value.size():
            if type(each) is SymInt:
                return True
        for each in value.stride():
            if type(each) is SymInt:
                return True
        return type(value.storage_offset()) is SymInt
    if kind is tuple or kind is list:
        return any(map(has_symbols, value))
    if kind is dict:
        return any(map(has_symbols, value.values()))
    return False


def view(op: Any, args: tuple, kwargs: dict) -> Any:
    """What the view operator returns, as fakes over the memory of its first argument."""
    base = args[0]
    rule = RULES.get(op)
    if rule is None:
        return _by_kernel(op, args, kwargs)
    result = rule(*args, **kwargs)
    if result is None:  # a case that the rule does not know
        return _by_kernel(op, args, kwargs)
    if isinstance(result, Layout):
        return strided(base, result)
    return [strided(base, each) for each in result]


def _memory_of(base: Fake) -> Any:
    """The storage that `base` lies in. It is false as a truth value where it has no elements."""
    return base.untyped_storage() if base.lampwork_storage is None else base.lampwork_storage


def strided(base: Fake, layout: Layout) -> Fake:
    """A fake over `base`'s memory with another layout. Raises `RuntimeError` for a negative size."""
    if not are_sizes(layout.shape):
        raise RuntimeError(f"a view of sizes {list(layout.shape)}")
    fake = _torch.tensor_without_memory(
        Fake, tuple(layout.shape), tuple(layout.strides), layout.dtype or base.dtype, base.device, offset=layout.offset
    )
    fake.lampwork_storage = _memory_of(base)
    if layout.dtype is None and (base.is_conj() or base.is_neg()):
        _torch.copy_lazy_bits(base, fake)
    return fake


def concrete(value: Any) -> Any:
    """The argument with every symbol specialised: a fake with plain sizes over the same memory, numbers, containers."""
    kind = type(value)
    if kind is SymInt:
        return int(value)
    if kind is tuple or kind is list:
        return kind([concrete(each) for each in value])
    if kind is dict:
        return {key: concrete(each) for key, each in value.items()}
    if isinstance(value, Fake) and has_symbols(value):
        shape, strides = tuple(map(int, value.size())), tuple(map(int, value.stride()))
        return strided(value, Layout(shape, strides, int(value.storage_offset())))
    return value


def _by_kernel(op: Any, args: tuple, kwargs: dict) -> Any:
    base = args[0]
    with _torch.below_autograd(), _torch.kernels_only():
        plain = op(*concrete(args), **concrete(kwargs))
    many = not isinstance(plain, torch.Tensor)
    fakes = [fake_like_view(each, base) for each in (plain if many else (plain,))]
    for fake in fakes:
        fake.lampwork_storage = _memory_of(base)
    return fakes if many else fakes[0]


# Rules ----------------------------------------------------------------------------------------------------------------

RULES: dict[_torch.Overload, Callable] = {}
R = TypeVar("R", bound=Callable)


def _rule(*overloads: _torch.Overload) -> Callable[[R], R]:
    def register(function: R) -> R:
        for each in overloads:
            RULES[each] = function
        return function

    return register


def _parts(x: torch.Tensor) -> tuple[list[Any], list[Any], Any]:
    return list(x.size()), list(x.stride()), x.storage_offset()


def _total(sizes: Iterable[object]) -> Any:
    result: Any = 1
    for size in sizes:
        result = result * size
    return result


@_rule(aten.alias.default, aten.detach.default, aten.lift_fresh.default)
def _same(x: torch.Tensor) -> Layout:
    return Layout(*_parts(x))


@_rule(aten.view_as_real.default)
def _as_real(x: torch.Tensor) -> Layout | None:
    if not x.is_complex() or x.is_conj():
        return None
    shape, strides, offset = _parts(x)
    return Layout([*shape, 2], [*[each * 2 for each in strides], 1], offset * 2, real_dtype(x.dtype))


@_rule(aten.view_as_complex.default)
def _as_complex(x: torch.Tensor) -> Layout | None:
    dtype = COMPLEX_OF.get(x.dtype)
    if dtype is None or real_dtype(dtype) != x.dtype or x.is_neg() or not x.dim():
        return None  # refused, in eager's words
    shape, strides, offset = _parts(x)
    if shape[-1] != 2 or strides[-1] != 1 or any(each % 2 != 0 for each in (*strides[:-1], offset)):
        return None
    return Layout(shape[:-1], [each // 2 for each in strides[:-1]], offset // 2, dtype)


@_rule(aten.view.default, aten._unsafe_view.default)
def reshaped(x: torch.Tensor, size: Sequence[int]) -> Layout:
    shape = inferred(size, x.size())
    strides = view_strides(x.size(), x.stride(), shape)
    if strides is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two "
            "contiguous subspaces). Use .reshape(...) instead."
        )
    return Layout(shape, strides, x.storage_offset())


@_rule(aten._reshape_alias.default)
def _reshape_alias(x: torch.Tensor, size: Sequence[int], stride: Sequence[int]) -> Layout:
    return _as_strided(x, size, stride)


@_rule(aten.as_strided.default)
def _as_strided(
    x: torch.Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Layout:
    """Whether this lies inside of the storage is asked where the memory is known."""
    if len(size) != len(stride):
        raise RuntimeError(f"mismatch in length of strides and shape, {len(stride)} and {len(size)}")
    if not are_sizes(stride):
        raise RuntimeError(f"as_strided: negative strides are not supported, got {list(stride)}")
    if not are_sizes(size):
        raise RuntimeError(f"as_strided: negative sizes, got {list(size)}")
    if storage_offset is not None and storage_offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {storage_offset}")
    return Layout(size, stride, x.storage_offset() if storage_offset is None else storage_offset)


def inferred(size: Sequence[int], old: Sequence[object]) -> list[Any]:
    """`size` with its -1 replaced. Raises eager's error when the elements do not fit."""
    shape = list(size)
    if any(each < -1 for each in shape if not by_contents(each)):
        raise RuntimeError(f"invalid shape dimension in '{shape}'")
    numel = _total(old)
    unknown = [index for index, each in enumerate(shape) if type(each) is int and each == -1]
    if len(unknown) > 1:
        raise RuntimeError("only one dimension can be inferred")
    if not unknown:
        if _total(shape) != numel:
            raise RuntimeError(f"shape '{shape}' is invalid for input of size {numel}")
        return shape
    known = _total(each for index, each in enumerate(shape) if index != unknown[0])
    if known == 0 or numel % known != 0:
        raise RuntimeError(f"shape '{shape}' is invalid for input of size {numel}")
    shape[unknown[0]] = numel // known
    return shape


def view_strides(old: Sequence[Any], strides: Sequence[Any], new: Sequence[Any]) -> Sequence[Any] | None:
    """Strides that give a tensor of sizes `old` the sizes `new`; None where only a copy can (`computeStride_impl`)."""
    if not old:
        return [1] * len(new)
    if any(isinstance(each, int) and each == 0 for each in old):  # no elements: any strides would do
        return strides if surely_same(old, new) else contiguous(new)
    if any(map(by_contents, (*old, *strides))):  # of those as little as possible is asked
        if surely_same(old, new):
            return strides
        if is_contiguous(old, strides):
            usual = contiguous(old)
            ones = [dim for dim, size in enumerate(old) if equal_for_all(size, 1)]
            if all(equal_for_all(strides[dim], usual[dim]) for dim in ones):
                return contiguous(new)
            return _split_or_joined(old, strides, new, _InLayouts) or contiguous(new)
    elif not any(map(differ, strides, contiguous(old))):  # those of dimensions of size 1, too
        return contiguous(new)
    return _split_or_joined(old, strides, new, _Exact)


class _Exact:
    """What is asked of sizes where the answer decides whether there is a view at all."""

    @staticmethod
    def differ(one: Any, other: Any) -> bool:
        return bool(one != other)

    @staticmethod
    def less(one: Any, other: Any) -> bool:
        return bool(one < other)


class _InLayouts:
    """What is asked where only strides of dimensions that step over nothing depend on the answer."""

    @staticmethod
    def differ(one: Any, other: Any) -> bool:
        return not equal_for_all(one, other) and differ(one, other)

    @staticmethod
    def less(one: Any, other: Any) -> bool:
        return less(one, other)


def _split_or_joined(
    old: Sequence[Any], strides: Sequence[Any], new: Sequence[Any], asks: type[_Exact] | type[_InLayouts]
) -> Sequence[Any] | None:
    """Strides of the view whose dimensions are parts of old ones, or several of them that step on alike."""
    result: list[Any] = [0] * len(new)
    place = len(new) - 1
    base = strides[-1]
    old_numel: Any = 1
    new_numel: Any = 1
    for dim in range(len(old) - 1, -1, -1):
        old_numel = old_numel * old[dim]
        if dim == 0 or _is_discontiguous(old[dim - 1], strides[dim - 1], old_numel * base, asks):
            while place >= 0 and _joins(new[place], new_numel, old_numel, asks):
                result[place] = new_numel * base
                new_numel = new_numel * new[place]
                place -= 1
            if asks.differ(new_numel, old_numel):
                return None
            if dim > 0:
                base, old_numel, new_numel = strides[dim - 1], 1, 1
    return result if place == -1 else None


def _is_discontiguous(size: Any, stride: Any, wanted: Any, asks: type[_Exact] | type[_InLayouts]) -> bool:
    """Whether a dimension steps over something by another stride. Its size is asked only where that tells."""
    return not equal_for_all(stride, wanted) and asks.differ(size, 1) and asks.differ(stride, wanted)


def _joins(size: Any, numel: Any, most: Any, asks: type[_Exact] | type[_InLayouts]) -> bool:
    """Whether a dimension of `size` lies among the `most` elements of which those inside of it are `numel`. Where all
    of it fits there whatever the sizes are, nothing is asked: beside `most` elements it is one of size 1."""
    if at_least_for_all(size, 1) and at_least_for_all(most, numel * size):
        return True
    return asks.less(numel, most) or not asks.differ(size, 1)


@_rule(aten.expand.default)
def _expand(x: torch.Tensor, size: Sequence[Any], *, implicit: bool = False) -> Layout:
    shape, strides, offset = _parts(x)
    added = len(size) - len(shape)
    if added < 0:
        raise RuntimeError(
            f"expand: the number of sizes provided ({len(size)}) must be greater or equal to the number of dimensions "
            f"in the tensor ({len(shape)})"
        )
    result: list[Any] = [None] * len(size)
    steps: list[Any] = [None] * len(size)
    for index in range(len(size) - 1, -1, -1):
        wanted = size[index]
        if index >= added:
            own, step = shape[index - added], strides[index - added]
        else:
            own, step = 1, result[index + 1] * steps[index + 1] if index + 1 < len(size) else 1
        if type(wanted) is int and wanted == -1 and index >= added:
            wanted = own
        elif not by_contents(wanted) and wanted < 0:
            raise RuntimeError(f"expand: size {wanted} is not allowed in dimension {index}. Sizes: {list(size)}.")
        elif own != wanted:
            if own != 1:
                raise RuntimeError(
                    f"The expanded size of the tensor ({wanted}) must match the existing size ({own}) at non-singleton "
                    f"dimension {index}.  Target sizes: {list(size)}.  Tensor sizes: {shape}"
                )
            step = 0
        result[index], steps[index] = wanted, step
    return Layout(result, steps if shape else [0] * len(size), offset)  # a number's strides are 0, of any size


@_rule(aten.permute.default)
def _permute(x: torch.Tensor, dims: Sequence[int]) -> Layout:
    shape, strides, offset = _parts(x)
    if len(dims) != len(shape):
        raise RuntimeError(f"permute: {len(dims)} dimensions for a tensor of {len(shape)}")
    order = [wrap_dim(dim, len(shape)) for dim in dims]
    if sorted(order) != list(range(len(shape))):
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return Layout([shape[dim] for dim in order], [strides[dim] for dim in order], offset)


@_rule(aten.transpose.int)
def _transpose(x: torch.Tensor, dim0: int, dim1: int) -> Layout:
    shape, strides, offset = _parts(x)
    one, two = wrap_dim(dim0, len(shape)), wrap_dim(dim1, len(shape))
    if not shape:
        return Layout(shape, strides, offset)
    shape[one], shape[two] = shape[two], shape[one]
    strides[one], strides[two] = strides[two], strides[one]
    return Layout(shape, strides, offset)


@_rule(aten.t.default)
def _t(x: torch.Tensor) -> Layout:
    if x.dim() > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {x.dim()}D")
    return Layout(*_parts(x)) if x.dim() < 2 else _transpose(x, 0, 1)


@_rule(aten.unsqueeze.default)
def _unsqueeze(x: torch.Tensor, dim: int) -> Layout:
    shape, strides, offset = _parts(x)
    dim = wrap_dim(dim, len(shape) + 1)
    step = shape[dim] * strides[dim] if dim < len(shape) else 1
    return Layout([*shape[:dim], 1, *shape[dim:]], [*strides[:dim], step, *strides[dim:]], offset)


@_rule(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims)
def _squeeze(x: torch.Tensor, dims: int | Sequence[int] | None = None) -> Layout:
    shape, strides, offset = _parts(x)
    if dims is None:
        chosen = set(range(len(shape)))
    else:
        named = [wrap_dim(dim, len(shape)) for dim in (dims if isinstance(dims, (list, tuple)) else (dims,))]
        chosen = set(named)
        if len(chosen) < len(named):
            raise RuntimeError(f"a dimension appears multiple times in the list of dims {dims}")
    kept = [dim for dim, size in enumerate(shape) if dim not in chosen or size != 1]
    return Layout([shape[dim] for dim in kept], [strides[dim] for dim in kept], offset)


@_rule(aten.slice.Tensor)
def _slice(x: torch.Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Layout:
    shape, strides, offset = _parts(x)
    if not shape:
        raise IndexError("slice() cannot be applied to a 0-dim tensor.")
    dim = wrap_dim(dim, len(shape))
    size = shape[dim]
    if step <= 0:
        raise RuntimeError("slice step must be positive")
    if by_contents(size) or by_contents(start) or by_contents(end):
        first, last = _clamped(start, 0, size), _clamped(end, size, size)
        last = torch.sym_max(first, last)
    else:
        first, last = _bound(start, 0, size), _bound(end, size, size)
        if last < first:
            last = first
    strides = list(strides)
    shape[dim] = last - first if type(step) is int and step == 1 else (last - first + step - 1) // step
    offset = offset + first * strides[dim]
    strides[dim] = strides[dim] * step
    return Layout(shape, strides, offset)


def _bound(value: Any, default: object, size: int) -> Any:
    """One end of a slice of a dimension of `size`."""
    if value is None or (type(value) is int and value >= _LONGEST):
        return default if value is None else size
    if value < 0:
        value = value + size
        return 0 if value < 0 else value
    return size if value > size else value


def _clamped(value: Any, default: object, size: int) -> Any:
    """`_bound` as an expression, which asks nothing of sizes that contents decide."""
    if value is None or (type(value) is int and value >= _LONGEST):
        return default if value is None else size
    if type(value) is not int and by_contents(value):
        if value.node.sizes.known(value.node.value, ">=", 0) is not True:
            raise DataDependent("a slice")
    elif value < 0:
        return torch.sym_max(value + size, 0)
    return torch.sym_min(value, size)


_LONGEST = (1 << 63) - 1


@_rule(aten.select.int)
def _select(x: torch.Tensor, dim: int, index: int) -> Layout:
    shape, strides, offset = _parts(x)
    if not shape:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    dim = wrap_dim(dim, len(shape))
    size = shape.pop(dim)
    if not (index >= -size and index < size):
        raise IndexError(f"select(): index {index} out of range for tensor of size {list(x.size())} at dimension {dim}")
    if index < 0:
        index = index + size
    return Layout(shape, strides[:dim] + strides[dim + 1 :], offset + index * strides[dim])


@_rule(aten.split.Tensor)
def _split(x: torch.Tensor, split_size: int, dim: int = 0) -> list[Layout]:
    if x.dim() and not by_contents(split_size) and split_size < 0:
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={split_size}")
    size = x.size()[_dimension_to_split(x, dim)]
    if split_size == 0:
        if size != 0:
            raise RuntimeError(f"split_size can only be 0 if dimension size is 0, but got dimension size of {size}")
        return [Layout(*_parts(x))]
    count = int((size + split_size - 1) // split_size)
    count = max(count, 1)
    return _pieces(x, [split_size] * (count - 1) + [size - split_size * (count - 1)], wrap_dim(dim, x.dim()))


def _dimension_to_split(x: torch.Tensor, dim: int) -> int:
    if not x.dim():
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    return wrap_dim(dim, x.dim())


@_rule(aten.split_with_sizes.default)
def _split_with_sizes(x: torch.Tensor, split_sizes: Sequence[object], dim: int = 0) -> list[Layout]:
    dim = _dimension_to_split(x, dim)
    if not are_sizes(split_sizes):
        raise RuntimeError(f"split_with_sizes expects only non-negative sizes, but got split_sizes={list(split_sizes)}")
    total: Any = 0
    for each in split_sizes:
        total = total + each
    if total != x.size()[dim]:
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {x.size()[dim]} (input tensor's size at dimension "
            f"{dim}), but got split_sizes={list(split_sizes)}"
        )
    return _pieces(x, split_sizes, dim)


def _pieces(x: torch.Tensor, sizes: Sequence[object], dim: int) -> list[Layout]:
    shape, strides, offset = _parts(x)
    result = []
    for size in sizes:
        result.append(Layout([*shape[:dim], size, *shape[dim + 1 :]], strides, offset))
        offset = offset + size * strides[dim]
    return result


@_rule(aten.unbind.int)
def _unbind(x: torch.Tensor, dim: int = 0) -> list[Layout]:
    dim = wrap_dim(dim, x.dim())
    if not x.dim():
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    return [_select(x, dim, index) for index in range(int(x.size()[dim]))]


@_rule(aten.diagonal.default)
def _diagonal(x: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Layout:
    shape, strides, start = _parts(x)
    one, two = wrap_dim(dim1, len(shape)), wrap_dim(dim2, len(shape))
    if one == two:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    rows, columns = (shape[one], shape[two] - offset) if offset >= 0 else (shape[one] + offset, shape[two])
    length = rows if rows <= columns else columns
    if length < 0:
        length = 0
    elif length != 0:
        start = start + (offset * strides[two] if offset >= 0 else -offset * strides[one])
    kept = [dim for dim in range(len(shape)) if dim not in (one, two)]
    shape = [*(shape[dim] for dim in kept), length]
    return Layout(shape, [*(strides[dim] for dim in kept), strides[one] + strides[two]], start)


@_rule(aten.unfold.default)
def _unfold(x: torch.Tensor, dimension: int, size: int, step: int) -> Layout:
    shape, strides, offset = _parts(x)
    dim = wrap_dim(dimension, len(shape))
    length = shape[dim] if shape else 1  # a tensor without dimensions is a row of one element
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    if size > length:
        raise RuntimeError(f"maximum size for tensor at dimension {dim} is {length} but size is {size}")
    if not shape:
        return Layout([size], [1], offset)
    shape[dim] = (length - size) // step + 1
    inner = strides[dim]
    strides[dim] = inner * step
    return Layout([*shape, size], [*strides, inner], offset)
