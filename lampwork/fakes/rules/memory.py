"""Shape rules of operators that make, copy, gather and join memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import torch

from lampwork.fakes.fake import DataDependent
from lampwork.fakes.shapes import (
    Spec,
    Unknown,
    broadcast,
    channels_last,
    check_expands,
    contiguous,
    differ,
    exact_device,
    fresh_in_format,
    has_zero,
    in_format_of,
    in_memory_format,
    is_contiguous,
    preserved,
    preserved_of,
    promoted,
    rule,
    same_sizes,
    scalar_dtype,
    suggests_channels_last,
    surely_same,
    wrap_dim,
)
from lampwork.fakes.strides import Scalar, sorted_for_ones, steps_in
from lampwork.fakes.symbolic import are_sizes, by_contents
from lampwork.fakes.views import RULES as VIEWS
from lampwork.fakes.views import aten, view_strides
from lampwork.ir.number import is_exact

if TYPE_CHECKING:

    class TensorOptions(TypedDict, total=False):
        """What operators that make tensors take by keyword."""

        dtype: torch.dtype | None
        layout: torch.layout | None
        device: torch.device | None
        pin_memory: bool | None
        memory_format: torch.memory_format | None


def _new(shape: Sequence[int], options: TensorOptions, strides: Sequence[int] | None = None,
         dtype: torch.dtype | None = None, device: torch.device | None = None) -> Spec:  # fmt: skip
    """A fresh tensor; `dtype` and `device` where the call names none."""
    shape = tuple(shape)
    if any(size < 0 for size in shape):
        raise Unknown
    device = options.get("device") or device
    return Spec(
        shape,
        contiguous(shape) if strides is None else tuple(strides),
        options.get("dtype") or dtype or torch.get_default_dtype(),
        exact_device(device) if device is not None else torch.get_default_device(),
    )


# Factories ----------------------------------------------------------------------------------------


@rule("zeros")
def zeros(size: Sequence[int], **options: Unpack[TensorOptions]) -> Spec:
    if any(each < 0 for each in size):
        raise RuntimeError("zeros: Dimension size must be non-negative.")
    return factory(size, **options)


@rule("empty.memory_format", "ones", "rand", "randn")
def factory(size: Sequence[int], **options: Unpack[TensorOptions]) -> Spec:
    if options.get("layout") not in (None, torch.strided) or options.get("pin_memory"):
        raise Unknown
    memory_format = options.get("memory_format")
    if memory_format == torch.preserve_format:
        raise Unknown
    return _new(size, options, None if memory_format is None else fresh_in_format(tuple(size), memory_format))


@rule("empty_strided")
def empty_strided(size: Sequence[int], stride: Sequence[int], **options: Unpack[TensorOptions]) -> Spec:
    return _new(size, options, stride)


@rule("full")
def full(size: Sequence[int], value: Scalar, **options: Unpack[TensorOptions]) -> Spec:
    if type(value) is complex:  # under a default of halves too
        return _new(size, options, dtype=torch.promote_types(torch.get_default_dtype(), torch.complex64))
    return _new(size, options, dtype=scalar_dtype(value))


@rule("scalar_tensor")
def scalar_tensor(value: Scalar, **options: Unpack[TensorOptions]) -> Spec:
    return _new((), options)


@rule("arange", "arange.start", "arange.start_step")
def arange(*bounds: Any, **options: Unpack[TensorOptions]) -> Spec:
    if not all(type(each) in (int, float, torch.SymInt) for each in bounds):
        raise Unknown
    if not all(math.isfinite(each) for each in bounds if type(each) is float):
        raise Unknown
    of_floats = any(type(each) is float for each in bounds)
    bounds = tuple([int(each) if type(each) is float and is_exact(each) else each for each in bounds])
    start, end, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    whole = all(type(each) is not float for each in bounds)
    if step == 0 or (end - start) * step < 0:
        raise Unknown
    dtype = options.get("dtype") or (torch.get_default_dtype() if of_floats else torch.int64)
    if not whole and not dtype.is_floating_point:
        raise Unknown
    count = math.ceil((end - start) / step) if not whole else -((start - end) // step)
    return _new((count,), options, dtype=dtype)


@rule("randint", "randint.low")
def randint(*args: Any, **options: Unpack[TensorOptions]) -> Spec:
    return _new(args[-1], options, dtype=torch.int64)


@rule("randperm")
def randperm(n: int, **options: Unpack[TensorOptions]) -> Spec:
    return _new((n,), options, dtype=torch.int64)


@rule("linspace")
def linspace(start: Scalar, end: Scalar, steps: int, **options: Unpack[TensorOptions]) -> Spec:
    if isinstance(start, complex) or isinstance(end, complex):
        raise Unknown
    return _new((steps,), options)


@rule("eye", "eye.m")
def eye(n: int, m: int | None = None, **options: Unpack[TensorOptions]) -> Spec:
    return _new((n, n if m is None else m), options)


@rule("empty_like", "zeros_like", "ones_like", "rand_like", "randn_like")
def like(x: torch.Tensor, **options: Unpack[TensorOptions]) -> Spec:
    if options.get("layout") not in (None, torch.strided):
        raise Unknown
    device = options.get("device")
    strides = in_memory_format(x, options.get("memory_format"))
    return Spec(tuple(x.size()), strides, options.get("dtype") or x.dtype, device and exact_device(device))


@rule("full_like", "randint_like")
def full_like(x: torch.Tensor, value: Scalar, **options: Unpack[TensorOptions]) -> Spec:
    return like(x, **options)


@rule("randint_like.low_dtype")
def randint_like(x: torch.Tensor, low: int, high: int, **options: Unpack[TensorOptions]) -> Spec:
    return like(x, **options)


@rule("new_empty", "new_zeros", "new_ones")
def new_tensor(x: torch.Tensor, size: Sequence[int], **options: Unpack[TensorOptions]) -> Spec:
    return _new(size, options, None, x.dtype, x.device)


@rule("new_full")
def new_full(x: torch.Tensor, size: Sequence[int], value: Scalar, **options: Unpack[TensorOptions]) -> Spec:
    return new_tensor(x, size, **options)


@rule("new_empty_strided")
def new_empty_strided(
    x: torch.Tensor, size: Sequence[int], stride: Sequence[int], **options: Unpack[TensorOptions]
) -> Spec:
    return _new(size, options, stride, x.dtype, x.device)


# Copies -------------------------------------------------------------------------------------------


@rule("clone")
def clone(x: torch.Tensor, *, memory_format: torch.memory_format | None = None) -> Spec:
    return Spec(tuple(x.size()), in_memory_format(x, memory_format), x.dtype)


@rule("_to_copy")
def to_copy(x: torch.Tensor, *, non_blocking: bool = False, **options: Unpack[TensorOptions]) -> Spec:
    if options.get("pin_memory"):
        raise Unknown
    return like(x, **options)


@rule("_unsafe_view")
def unsafe_view(x: torch.Tensor, size: Sequence[int]) -> Spec:
    """A view that autograd need not know about. Its memory is the argument's, which nobody else sees."""
    shape = list(size)
    if not is_contiguous(x.size(), x.stride()):
        raise Unknown
    if -1 in shape:
        known = math.prod(each for each in shape if each != -1)
        shape[shape.index(-1)] = x.numel() // known if known else 0
    return Spec(tuple(shape), contiguous(shape), x.dtype)


@rule("flip")
def flip(x: torch.Tensor, dims: Sequence[int]) -> Spec:
    if len({wrap_dim(dim, x.dim()) for dim in dims}) < len(dims):
        raise Unknown
    return Spec(tuple(x.size()), preserved(x), x.dtype)


@rule("rot90")
def rot90(x: torch.Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Spec:
    """A flip, of which dimensions are exchanged; of no quarter turn a copy in row-major order."""
    if len(dims) != 2 or x.dim() < 2:
        raise Unknown
    one, two = (wrap_dim(dim, x.dim()) for dim in dims)
    if one == two:
        raise Unknown
    shape, strides = list(x.size()), list(contiguous(x.size()) if k % 4 == 0 else preserved(x))
    if k % 2:
        shape[one], shape[two] = shape[two], shape[one]
        strides[one], strides[two] = strides[two], strides[one]
    return Spec(tuple(shape), tuple(strides), x.dtype)


@rule("fill.Scalar", "fill.Tensor")
def fill(x: torch.Tensor, value: Scalar | torch.Tensor) -> Spec:
    if isinstance(value, torch.Tensor) and value.dim():
        raise RuntimeError(f"fill only supports 0-dimension value tensor but got tensor with {value.dim()} dimensions.")
    return Spec(tuple(x.size()), preserved(x), x.dtype)


@rule("roll")
def roll(x: torch.Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Spec:
    count = len(shifts) if isinstance(shifts, (list, tuple)) else 1
    named = dims if isinstance(dims, (list, tuple)) else (dims,)
    if count != (len(named) or 1) or not x.dim() and named:
        raise RuntimeError(f"shifts and dimensions must align. shifts: {count}, dims:{len(named)}")
    for dim in named:
        wrap_dim(dim, x.dim())
    if not is_contiguous(x.size(), x.stride()):
        raise Unknown
    return Spec(tuple(x.size()), preserved(x) if not x.numel() else contiguous(x.size()), x.dtype)


@rule("tril", "triu")
def triangle(x: torch.Tensor, diagonal: int = 0) -> Spec:
    if x.dim() < 2:
        raise Unknown
    return Spec(tuple(x.size()), contiguous(x.size()), x.dtype)


@rule("repeat")
def repeat(x: torch.Tensor, repeats: Sequence[int]) -> Spec:
    if len(repeats) < x.dim():
        raise Unknown
    padded = (1,) * (len(repeats) - x.dim()) + tuple(x.size())
    shape = tuple(size * times for size, times in zip(padded, repeats))
    return Spec(shape, contiguous(shape), x.dtype)


@rule("constant_pad_nd")
def constant_pad_nd(x: torch.Tensor, pad: Sequence[int], value: Scalar = 0) -> Spec:
    shape = list(x.size())
    if len(pad) % 2 or len(pad) > 2 * len(shape):
        raise Unknown
    kept = list(shape)
    for index in range(len(pad) // 2):
        shape[-1 - index] += pad[2 * index] + pad[2 * index + 1]
        for width in pad[2 * index : 2 * index + 2]:
            if width < 0:
                kept[-1 - index] += width
    if not are_sizes(kept):
        raise Unknown
    if any(size <= 0 for size in shape if type(size) is int or not by_contents(size)):
        raise Unknown
    if all(width <= 0 for width in pad):  # a copy of a slice
        return Spec(tuple(shape), preserved_of(shape, x.stride()), x.dtype)
    return Spec(tuple(shape), channels_last(shape) if suggests_channels_last(x) else contiguous(shape), x.dtype)


@rule("reflection_pad2d", "reflection_pad3d")
def reflection_pad(x: torch.Tensor, padding: Sequence[int]) -> Spec:
    if any(width >= x.size()[-1 - index // 2] for index, width in enumerate(padding[: 2 * x.dim()])):
        raise Unknown
    return replication_pad(x, padding)


@rule("replication_pad2d", "replication_pad3d")
def replication_pad(x: torch.Tensor, padding: Sequence[int]) -> Spec:
    """Kernels for the CPU keep the memory format, also where one image of a volume looks like images of a plane; those
    for GPUs do not."""
    spatial = len(padding) // 2
    if not x.is_cpu or x.dim() - spatial not in (1, 2) or spatial not in (2, 3) or has_zero(x.size()):
        raise Unknown
    shape = list(x.size())
    for index in range(spatial):
        shape[-1 - index] += padding[2 * index] + padding[2 * index + 1]
    if any(size <= 0 for size in shape[-spatial:]):
        raise Unknown
    return Spec(tuple(shape), in_format_of(x, shape), x.dtype)


@rule("max_unpool2d")
def max_unpool2d(x: torch.Tensor, indices: torch.Tensor, output_size: Sequence[int]) -> Spec:
    """Kernels for the CPU keep the memory format."""
    if not x.is_cpu or x.dim() != 4 or indices.dtype != torch.int64 or not same_sizes(x.size(), indices.size()):
        raise Unknown
    if len(output_size) != 2 or has_zero(x.size()[1:]):
        raise Unknown
    shape = (*x.size()[:2], *output_size)
    return Spec(shape, in_format_of(x, shape), x.dtype)


@rule("channel_shuffle")
def channel_shuffle(x: torch.Tensor, groups: int) -> Spec:
    if not x.is_cpu or x.dim() < 3 or groups <= 0 or x.size()[1] % groups:
        raise Unknown
    return Spec(tuple(x.size()), in_format_of(x, x.size()), x.dtype)


@rule("pixel_shuffle")
def pixel_shuffle(x: torch.Tensor, factor: int) -> Spec:
    _refuse_channels_last_3d(x)
    if not x.is_cpu or x.dim() != 4 or factor <= 0 or x.size()[1] % (factor * factor):
        raise Unknown
    batch, channels, height, width = x.size()
    shape = (batch, channels // (factor * factor), height * factor, width * factor)
    return Spec(shape, in_format_of(x, shape), x.dtype)


def _refuse_channels_last_3d(x: torch.Tensor) -> None:
    """Raises for what a kernel for the CPU refuses that takes any number of dimensions, and 4 in channels last."""
    if x.is_cpu and x.dim() == 5 and suggests_channels_last(x):
        raise RuntimeError("Unsupported memory format. Supports only ChannelsLast, Contiguous")


@rule("pixel_unshuffle")
def pixel_unshuffle(x: torch.Tensor, factor: int) -> Spec:
    _refuse_channels_last_3d(x)
    if not x.is_cpu or x.dim() != 4 or factor <= 0 or x.size()[2] % factor or x.size()[3] % factor:
        raise Unknown
    batch, channels, height, width = x.size()
    shape = (batch, channels * factor * factor, height // factor, width // factor)
    return Spec(shape, in_format_of(x, shape), x.dtype)


# Joins --------------------------------------------------------------------------------------------


@rule("cat")
def cat(tensors: Sequence[torch.Tensor], dim: int = 0) -> Spec:
    kept = [each for each in tensors if each.dim() != 1 or not has_zero(each.size())]
    if not kept or any(each.dim() == 0 for each in tensors):
        raise Unknown
    dims = kept[0].dim()
    dim = wrap_dim(dim, dims)
    shape = list(kept[0].size())
    for other in kept[1:]:
        sizes = other.size()
        if len(sizes) != dims:
            raise RuntimeError(f"Tensors must have same number of dimensions: got {dims} and {len(sizes)}")
        if any(a != b for index, (a, b) in enumerate(zip(shape, sizes)) if index != dim):
            raise Unknown
        shape[dim] += sizes[dim]
    dtype = promoted(tensors)
    # The common memory format, if all agree.
    formats = {suggests_channels_last(each) for each in kept}
    return Spec(tuple(shape), channels_last(shape) if formats == {True} else contiguous(shape), dtype)


@rule("stack")
def stack(tensors: Sequence[torch.Tensor], dim: int = 0) -> Spec:
    if not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")
    first = tensors[0].size()
    dim = wrap_dim(dim, len(first) + 1)
    if any(not same_sizes(each.size(), first) for each in tensors):
        raise RuntimeError("stack expects each tensor to be equal size")
    shape = (*first[:dim], len(tensors), *first[dim:])
    strides = contiguous(shape)
    if dim < len(first) and not has_zero(shape) and all(map(suggests_channels_last, tensors)):
        # Eager joins along `dim`, which keeps the memory format, and divides that dimension.
        joined = (*first[:dim], len(tensors) * first[dim], *first[dim + 1 :])
        divided = view_strides(joined, channels_last(joined), shape)
        strides = contiguous(shape) if divided is None else tuple(divided)
    return Spec(shape, strides, promoted(tensors))


# Indexing -----------------------------------------------------------------------------------------


@rule("embedding")
def embedding(weight: torch.Tensor, indices: torch.Tensor, *options: object) -> Spec:
    if weight.dim() != 2:
        raise Unknown
    if indices.dtype not in (torch.int64, torch.int32):
        raise RuntimeError(f"Expected tensor for argument #1 'indices' to hold long or int; but got {indices.dtype}")
    if indices.dim() == 1:
        shape: tuple = (indices.size()[0], weight.size()[1])
    else:
        shape = (*indices.size(), weight.size()[1])
    return Spec(shape, contiguous(shape), weight.dtype)


@rule("index_select")
def index_select(x: torch.Tensor, dim: int, index: torch.Tensor) -> Spec:
    place = wrap_dim(dim, x.dim())
    if index.dim() > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    if x.dim() == 0:
        if index.numel() != 1:
            raise RuntimeError(f"index_select(): Index to scalar can have only 1 value, got {index.numel()} value(s)")
        return Spec((), (), x.dtype)
    shape = list(x.size())
    shape[place] = index.numel()
    return Spec(tuple(shape), contiguous(shape), x.dtype)


@rule("gather")
def gather(x: torch.Tensor, dim: int, index: torch.Tensor, *, sparse_grad: bool = False) -> Spec:
    if x.dim() != index.dim() or index.dtype not in (torch.int64, torch.int32):
        raise Unknown
    check_no_larger(index, x, dim)
    return Spec(tuple(index.size()), contiguous(index.size()), x.dtype)


def check_no_larger(index: torch.Tensor, other: torch.Tensor, but: int | None = None) -> None:
    """Raises, as eager does, where `index` has more elements than `other` in a dimension other than `but`: a kernel
    reads and writes wherever `index` says."""
    left, right = index.size() or (1,), other.size() or (1,)
    if has_zero(left):
        return
    but = wrap_dim(but, len(left)) if but is not None else None
    if len(left) != len(right):
        raise RuntimeError("Index tensor must have the same number of dimensions as the other tensors")
    for dim, (one, two) in enumerate(zip(left, right)):
        if dim != but and not surely_same((one,), (two,)) and one > two:
            raise RuntimeError(f"Expected index {list(left)} to be no larger than {list(right)} in dimension {dim}")


@rule("scatter.src", "scatter.value", "scatter_add", "scatter_reduce.two")
def scatter(
    x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor | Scalar, *args: object, **kwargs: object
) -> Spec:
    check_no_larger(index, x, dim)
    if isinstance(source, torch.Tensor):
        check_no_larger(index, source)
        if source.dtype != x.dtype:
            raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
    return Spec(tuple(x.size()), contiguous(x.size()), x.dtype)


@rule("index_copy")
def index_copy(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, **kwargs: object) -> Spec:
    if index.dtype is not torch.int64:
        raise RuntimeError(f"index_copy_(): Expected a long tensor for index, but got {index.dtype}")
    return index_add(x, dim, index, source)


@rule("index_add", "index_reduce")
def index_add(
    x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *how: str, **kwargs: object
) -> Spec:
    if x.dim() != source.dim() or index.dim() != 1 or not x.dim():
        raise Unknown
    if x.dtype != source.dtype:
        raise RuntimeError(f"self and source expected to have the same dtype, but got {x.dtype} and {source.dtype}")
    expected = list(x.size())
    expected[wrap_dim(dim, x.dim())] = index.size()[0]
    for one, two in zip(expected, source.size()):
        if not surely_same((one,), (two,)) and one != two:
            raise RuntimeError(f"Number of indices and slices {expected} should be those of source {source.size()}")
    return Spec(tuple(x.size()), contiguous(x.size()), x.dtype)


@rule("index_fill.int_Scalar")
def index_fill(x: torch.Tensor, dim: int, *args: object, **kwargs: object) -> Spec:
    wrap_dim(dim, x.dim())
    return Spec(tuple(x.size()), preserved(x), x.dtype)


@rule("masked_scatter")
def masked_scatter(x: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> Spec:
    shape = broadcast([x.size(), mask.size()])
    return Spec(shape, contiguous(shape), x.dtype)


@rule("copy")
def copy(x: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> Spec:
    check_expands(source.size(), x.size())
    return with_its_strides(x)


def _view_scatter(view: Any) -> Any:
    def view_scatter(x: torch.Tensor, source: torch.Tensor, *place: Any, **named: Any) -> Spec:
        """Written is a view of a copy, which the source has to fill exactly."""
        layout = VIEWS[view](x, *place, **named)
        if not surely_same(layout.shape, source.size()) and tuple(layout.shape) != tuple(source.size()):
            raise RuntimeError(
                f"expected src to have a size equal to the slice of self. src size = {list(source.size())}, "
                f"slice size = {list(layout.shape)}"
            )
        return with_its_strides(x)

    return view_scatter


rule("slice_scatter")(_view_scatter(aten.slice.Tensor))
rule("select_scatter")(_view_scatter(aten.select.int))
rule("diagonal_scatter")(_view_scatter(aten.diagonal.default))
rule("as_strided_scatter")(_view_scatter(aten.as_strided.default))


@rule("diag_embed")
def diag_embed(x: torch.Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Spec:
    rank = x.dim() + 1
    if not x.dim() or not all(-rank <= each < rank for each in (dim1, dim2)) or (dim1 - dim2) % rank == 0:
        raise Unknown
    *shape, length = x.size()
    for place in sorted((dim1 % rank, dim2 % rank)):
        shape.insert(place, length + abs(offset))
    return Spec(tuple(shape), contiguous(tuple(shape)), x.dtype)


@rule("diagonal_copy")
def diagonal_copy(x: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Spec:
    shape = tuple(VIEWS[aten.diagonal.default](x, offset, dim1, dim2).shape)
    return Spec(shape, contiguous(shape), x.dtype)


def with_its_strides(x: torch.Tensor) -> Spec:
    """The spec of what copies the whole storage range, so that every stride stays (unlike `clone`), unless elements
    overlap."""
    overlaps = (
        any(type(stride) is int and stride == 0 and size > 1 for size, stride in zip(x.size(), x.stride()))
        and x.numel()
    )
    return Spec(tuple(x.size()), preserved(x) if overlaps else x.stride(), x.dtype)


#: Types of tensors that say of each element whether it is meant.
MASKS = frozenset({torch.bool, torch.uint8})


def check_masks(x: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> None:
    """Raises eager's error where a mask has another shape than the dimensions that it stands for."""
    dim = 0
    for index in indices:
        if index is None or index.dtype not in MASKS:
            dim += 1
            continue
        for axis in range(index.dim()):
            if dim >= x.dim() or index.size(axis) != x.size(dim):
                raise IndexError(
                    f"The shape of the mask {list(index.size())} at index {axis} does not match the shape of the "
                    f"indexed tensor {list(x.size())} at index {dim}"
                )
            dim += 1


@rule("index_put")
def index_put(
    x: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False
) -> Spec:
    if any(each is not None and each.dtype in MASKS for each in indices):
        check_masks(x, indices)
    elif x.numel():
        chosen = index(x, indices)
        if isinstance(chosen, Spec) and not surely_same(values.size(), chosen.shape):
            if values.dim() > len(chosen.shape) or broadcast([values.size(), chosen.shape]) != chosen.shape:
                raise RuntimeError(
                    f"shape mismatch: value tensor of shape {list(values.size())} cannot be broadcast to indexing "
                    f"result of shape {list(chosen.shape)}"
                )
    return Spec(tuple(x.size()), preserved(x), x.dtype)


@rule("index.Tensor")
def index(x: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> Spec:
    """Indexing by integer tensors. Where they are adjacent their dimensions stay in place, else they go first.

    The layout is that of an elementwise operator on the gathered tensor (strides 0 where indexed) and the indices.
    """
    tensors = [each for each in indices if each is not None]
    if any(each.dtype in MASKS for each in tensors):
        raise DataDependent("indexing by a boolean mask")
    if len(indices) > x.dim() or not tensors or not x.numel():
        raise Unknown
    common = broadcast([each.size() for each in tensors])
    chosen = [position for position, each in enumerate(indices) if each is not None]
    kept = [position for position in range(x.dim()) if position not in chosen]
    adjacent = chosen == list(range(chosen[0], chosen[-1] + 1))
    before = chosen[0] if adjacent else 0
    sizes, steps = x.size(), x.stride()
    first, last = kept[:before], kept[before:]
    shape = (*(sizes[dim] for dim in first), *common, *(sizes[dim] for dim in last))
    own = [*(steps[dim] for dim in first), *(0 for _ in common), *(steps[dim] for dim in last)]
    alone = [not differ(sizes[dim], 1) for dim in (*first, *last)]

    def rows(one: tuple[int, bool] | None) -> list[list[Any]]:
        found = [own]
        for tensor in tensors:
            stretched = steps_in(common, tensor.size(), tensor.stride(), one)
            # The index gets dimensions of one element beside its own. They have strides, which count where x has one.
            outer, inner = (stretched[0] * common[0], stretched[-1]) if common else (1, 1)
            leading = [outer if each else 0 for each in alone[: len(first)]]
            found.append([*leading, *stretched, *(inner if each else 0 for each in alone[len(first) :])])
        return found

    if all(alone) and has_zero(shape):  # operands of one shape without elements, which all count as contiguous
        return Spec(shape, contiguous(shape), x.dtype)
    if len(shape) < 2:
        return Spec(shape, contiguous(shape), x.dtype)
    return Spec(shape, sorted_for_ones([each.size() for each in tensors], common, rows, shape), x.dtype)


@rule("topk")
def topk(x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Spec, Spec]:
    shape = list(x.size())
    if not shape:
        raise Unknown
    shape[wrap_dim(dim, len(shape))] = k
    return Spec(tuple(shape), contiguous(shape), x.dtype), Spec(tuple(shape), contiguous(shape), torch.int64)


@rule("sort", "sort.stable")
def sort(x: torch.Tensor, *args: object, **kwargs: object) -> tuple[Spec, Spec]:
    strides = preserved(x)
    return Spec(tuple(x.size()), strides, x.dtype), Spec(tuple(x.size()), strides, torch.int64)


def _embedding_bag(extra: int) -> Any:
    def embedding_bag(weight: torch.Tensor, indices: torch.Tensor, offsets: torch.Tensor, scaled: bool = False,
                      mode: int = 0, sparse: bool = False, per_sample_weights: Any = None,
                      include_last_offset: bool = False, padding_idx: int = -1) -> Any:  # fmt: skip
        """Sums (mode 0), means (1) or maxima (2) of bags of rows, and what the derivative needs."""
        if not weight.is_cpu or indices.dim() != 1 or indices.dtype != offsets.dtype:
            raise Unknown
        count, width = offsets.size()[0], weight.size()[1]
        bags = count - 1 if include_last_offset else count
        sizes = bags if mode or not include_last_offset else bags + extra
        # The kernel for plain sums of rows does without knowing which bag each index is in.
        is_plain = mode == 0 and padding_idx < 0 and weight.stride()[1] == 1
        is_plain = is_plain and weight.dtype in (torch.float32, torch.float16, torch.bfloat16)
        is_plain = is_plain and (per_sample_weights is None or per_sample_weights.stride()[0] == 1)
        largest = (bags, width) if mode == 2 else (sizes,)
        return (
            Spec((bags, width), contiguous((bags, width)), weight.dtype),
            Spec((0,) if is_plain else (indices.size()[0],), (1,), indices.dtype),
            Spec((sizes,), (1,), indices.dtype),
            Spec(largest, contiguous(largest), indices.dtype),
        )

    return embedding_bag


rule("_embedding_bag")(_embedding_bag(0))
rule("_embedding_bag_forward_only")(_embedding_bag(1))


@rule("lampwork::launch")
def _launch(launch: str, written: Sequence[torch.Tensor], *_: object) -> list[Spec]:
    """What a kernel of the program's makes of each tensor that it writes."""
    return [Spec(tuple(each.size()), tuple(each.stride()), each.dtype, each.device) for each in written]
