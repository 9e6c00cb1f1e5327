"""Pooling as reductions over windows, nearest resampling as index maps, pixel shuffles."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

from lampwork.ir.dtype import FLOATING, compute_dtype
from lampwork.ir.loops import Compute, Expr
from lampwork.ir.size import Size, add, bounds, floordiv, maximum, minimum, mod, mul
from lampwork.lower import expressions as ex
from lampwork.lower.expressions import as_index
from lampwork.lower.indexing import clamped, fresh_symbol
from lampwork.lower.lower import Lowering
from lampwork.lower.rules import rule
from lampwork.lower.values import IndexTuple, Result, TensorMeta, TensorValue


def per_dimension(value: int | Sequence[int], count: int, default: Sequence[int] = ()) -> tuple[int, ...]:
    if isinstance(value, int):
        value = (value,)
    value = tuple(value) or tuple(default)
    return value * count if len(value) == 1 else value


def _inside(position: Size, low: Size, high: Size) -> Expr | None:
    """`low <= position < high`, with what the bounds of `position` prove left out (None: always)."""
    smallest, largest = bounds(position)
    lower = None if smallest >= bounds(low)[1] else Compute("ge", (as_index(position), as_index(low)), "bool")
    upper = None if largest < bounds(high)[0] else Compute("lt", (as_index(position), as_index(high)), "bool")
    return ex.both(lower, upper)


@rule("max_pool2d_with_indices", "max_pool3d_with_indices")
def _max_pool(
    lowering: Lowering,
    self: TensorValue,
    kernel_size: tuple[int, ...],
    stride: tuple[int, ...] = (),
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    ceil_mode: bool = False,
) -> tuple[TensorValue | None, ...]:
    """The largest element of each window, and where it is: the first of equal ones inside of the image, the last of
    NaNs."""
    if self.dtype not in FLOATING or 0 in self.shape:
        return NotImplemented
    count = 3 if "3d" in lowering.origin.op else 2
    kernel = per_dimension(kernel_size, count)
    stride = per_dimension(stride, count, kernel)
    padding, dilation = per_dimension(padding, count), per_dimension(dilation, count)
    meta = lowering.out[0]
    rank = len(self.shape)
    spatial = rank - count
    if lowering.needed(1) and not lowering.kernels.scattered_loads and spatial and meta.strides[spatial - 1] == 1:
        return NotImplemented  # ATen's own kernel for channels innermost takes a quarter of the time of ours
    dtype = compute_dtype(self.dtype)

    def body(index: IndexTuple) -> Expr:
        mask = None
        where = list(index[:spatial])
        for k in range(count):
            position = add(mul(index[spatial + k], stride[k]), add(mul(index[rank + k], dilation[k]), -padding[k]))
            mask = ex.both(mask, _inside(position, 0, self.shape[spatial + k]))
            where.append(position)
        return ex.cast(self.load(tuple(where), mask, -math.inf if mask is not None else 0), dtype)

    space = (*meta.shape, *kernel)
    dims = range(rank, rank + count)
    places: TensorValue | None = None
    if lowering.needed(1):
        in_window = lowering.reduce("argmax_of_window", space, dims, body, dtype, "place")

        def place(index: IndexTuple) -> Expr:
            rest = in_window.load(index)
            position: Expr = ex.constant(0, "int64")
            for k in range(count):
                inner = math.prod(kernel[k + 1 :])
                step, rest = _divided(rest, inner)
                start = as_index(add(mul(index[spatial + k], stride[k]), -padding[k]))
                at = ex.add(start, ex.mul(step, ex.constant(dilation[k], "int64")))
                if padding[k]:  # of nothing above -inf the first place of the window was found, which may be outside
                    beyond = ex.add(start, ex.constant(padding[k] * dilation[k], "int64"))
                    at = ex.maximum(at, _divided(beyond, dilation[k])[1])
                position = ex.add(ex.mul(position, as_index(self.shape[spatial + k])), at)
            return position

        places = lowering.compute(lowering.out[1], place, "1")
    if not lowering.needed(0):
        return None, places
    if meta.dtype == dtype:
        return lowering.reduce("max_of_window", space, dims, body, dtype, "0", meta), places
    largest = lowering.reduce(
        "max_of_window", space, dims, body, dtype, "max", TensorMeta(dtype, meta.shape, meta.strides)
    )
    return lowering.compute(meta, largest.load, "0"), places


def _divided(value: Expr, by: int) -> tuple[Expr, Expr]:
    """Quotient and remainder of a non-negative integer."""
    if by == 1:
        return value, ex.constant(0, "int64")
    divisor = ex.constant(by, "int64")
    quotient = ex.binary("truncdiv", value, divisor)
    return quotient, ex.sub(value, ex.mul(quotient, divisor))


@rule("avg_pool2d", "avg_pool3d")
def _avg_pool(
    lowering: Lowering,
    self: TensorValue,
    kernel_size: tuple[int, ...],
    stride: tuple[int, ...] = (),
    padding: int | tuple[int, ...] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> TensorValue:
    if self.dtype not in FLOATING or 0 in self.shape:
        return NotImplemented
    count = 3 if "3d" in lowering.origin.op else 2
    kernel = per_dimension(kernel_size, count)
    stride = per_dimension(stride, count, kernel)
    padding = per_dimension(padding, count)
    rank = len(self.shape)
    spatial = rank - count
    dtype = compute_dtype(self.dtype)

    def body(index: IndexTuple) -> Expr:
        mask = None
        where = list(index[:spatial])
        for k in range(count):
            position = add(mul(index[spatial + k], stride[k]), add(index[rank + k], -padding[k]))
            mask = ex.both(mask, _inside(position, 0, self.shape[spatial + k]))
            where.append(position)
        return ex.cast(self.load(tuple(where), mask), dtype)

    def divisor(index: IndexTuple) -> Size:
        if divisor_override is not None:
            return divisor_override
        size: Size = 1
        for k in range(count):
            extent = self.shape[spatial + k]
            start = add(mul(index[spatial + k], stride[k]), -padding[k])
            end = minimum(add(start, kernel[k]), add(extent, padding[k]))
            if not count_include_pad:
                start, end = maximum(start, 0), minimum(end, extent)
            size = mul(size, add(end, mul(start, -1)))
        return size

    return _mean_of_windows(lowering, kernel, body, dtype, divisor)


@rule("_adaptive_avg_pool2d", "_adaptive_avg_pool3d")
def _adaptive_avg_pool(lowering: Lowering, self: TensorValue, output_size: tuple[Size, ...]) -> Result:
    """Window k of n covers [k*size // n, ceil((k+1)*size / n))."""
    if self.dtype not in FLOATING or 0 in self.shape or 0 in lowering.out.shape:
        return NotImplemented
    count = 3 if "3d" in lowering.origin.op else 2
    meta = lowering.out
    rank = len(self.shape)
    spatial = rank - count
    dtype = compute_dtype(self.dtype)

    def window(k: int, position: Size) -> tuple[Size, Size]:
        size, wanted = self.shape[spatial + k], meta.shape[spatial + k]
        start = floordiv(mul(position, size), wanted)
        return start, floordiv(add(mul(add(position, 1), size), add(wanted, -1)), wanted)

    longest = []
    for k in range(count):
        size, wanted = self.shape[spatial + k], meta.shape[spatial + k]
        if not isinstance(size, int) or not isinstance(wanted, int):
            return NotImplemented
        longest.append(max(-(-(p + 1) * size // wanted) - p * size // wanted for p in range(wanted)))

    def body(index: IndexTuple) -> Expr:
        mask = None
        where = list(index[:spatial])
        for k in range(count):
            start, end = window(k, index[spatial + k])
            if self.shape[spatial + k] % meta.shape[spatial + k]:
                mask = ex.both(mask, _inside(add(index[rank + k], mul(add(end, mul(start, -1)), -1)), -(1 << 30), 0))
            where.append(add(start, index[rank + k]))
        return ex.cast(self.load(tuple(where), mask), dtype)

    def numel(index: IndexTuple) -> Size:
        size: Size = 1
        for k in range(count):
            start, end = window(k, index[spatial + k])
            size = mul(size, add(end, mul(start, -1)))
        return size

    return _mean_of_windows(lowering, longest, body, dtype, numel)


def _mean_of_windows(
    lowering: Lowering,
    windows: Sequence[int],
    body: Callable[[IndexTuple], Expr],
    dtype: str,
    numel: Callable[[IndexTuple], Size],
) -> TensorValue:
    """`body` summed over windows of these sizes, after the result's dimensions, and divided by `numel` of each."""
    meta = lowering.out
    rank = len(meta.shape)
    total = lowering.reduce(
        "sum", (*meta.shape, *windows), range(rank, rank + len(windows)), body, dtype, "sum",
        TensorMeta(dtype, meta.shape, meta.strides),
    )  # fmt: skip
    return lowering.compute(
        meta, lambda index: ex.div(total.load(index), lowering.operand(numel(index), (), (), dtype))
    )


# Resampling ----------------------------------------


def _float32(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


def nearest_source(size: Size, wanted: Size, scale: float | None, exact: bool) -> Any:
    """`position -> source position` of nearest resampling as index arithmetic, or None where ATen's float32
    arithmetic gives other positions than the exact quotient (compared one by one)."""
    if not isinstance(size, int) or not isinstance(wanted, int):
        return None
    ratio = _float32(1.0 / scale) if scale is not None and scale > 0 else _float32(size / wanted)
    shift = 0.5 if exact else 0.0
    for position in range(wanted):
        theirs = min(math.floor(_float32(_float32(position + shift) * ratio)), size - 1)
        ours = (2 * position + 1) * size // (2 * wanted) if exact else position * size // wanted
        if theirs != ours:
            return None
    if exact:
        return lambda position: floordiv(mul(add(mul(position, 2), 1), size), 2 * wanted)
    return lambda position: floordiv(mul(position, size), wanted)


@rule(
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
    "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d",
)  # fmt: skip
def _upsample_nearest(
    lowering: Lowering, self: TensorValue, output_size: Any, *scales: float | None, **named: Any
) -> TensorValue:
    if 0 in self.shape or 0 in lowering.out.shape:
        return NotImplemented
    shape, meta = self.shape, lowering.out
    spatial = len(shape) - 2
    given = list(scales) + list(named.values())
    given += [None] * (spatial - len(given))
    maps = [
        nearest_source(shape[2 + k], meta.shape[2 + k], given[k], "exact" in lowering.origin.op) for k in range(spatial)
    ]
    if None in maps or (named and scales):
        return NotImplemented
    return lowering.compute(
        meta, lambda index: self.load((*index[:2], *[maps[k](index[2 + k]) for k in range(spatial)]))
    )


def _centered(lowering: Lowering, position: Size, ratio: float, dtype: str) -> Expr:
    """`ratio * (position + 0.5) - 0.5`, rounded as eager's kernels have it: most are compiled to multiply and add in
    one instruction. A weight that is 0 and one of 1e-8 differ beside an infinity."""
    number = lambda value: ex.constant(value, dtype)
    middle = ex.add(ex.cast(as_index(position), dtype), number(0.5))
    if dtype == "float64" and not lowering.numerics.centers_doubles_once:
        return ex.sub(ex.mul(number(ratio), middle), number(0.5))
    return ex.fma(number(ratio), middle, number(-0.5))


def _is_channels_last(x: TensorValue) -> bool:
    """Whether the channels of x: [N, C, ...], of known sizes, lie innermost in memory."""
    expected: Size = 1
    for dim in (1, *range(len(x.shape) - 1, 1, -1), 0):
        if x.shape[dim] != 1 and x.ref.strides[dim] != expected:
            return False
        expected = mul(expected, x.shape[dim])
    return True


@rule("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")
def _upsample_linear(
    lowering: Lowering, self: TensorValue, output_size: Any, align_corners: bool, *scales: float | None, **named: Any
) -> TensorValue:
    """Weighted means of the 2^n neighbours. Per dimension two helpers give each output position its source position and
    weight; the neighbours are loaded through them (UpSample.h: area_pixel_compute_source_index)."""
    shape, meta = self.shape, lowering.out
    if 0 in shape or 0 in meta.shape or self.dtype not in FLOATING or not all(isinstance(n, int) for n in shape):
        return NotImplemented
    spatial = len(shape) - 2
    given = list(scales) + list(named.values())
    given += [None] * (spatial - len(given))
    if named and scales:
        return NotImplemented
    if lowering.numerics.copies_unresampled and shape == meta.shape:
        return lowering.compute(meta, self.load)  # as eager's kernels do, whatever the scale
    dtype = compute_dtype(self.dtype)
    tables = []
    for k in range(spatial):
        size, wanted = shape[2 + k], meta.shape[2 + k]
        # Where nothing is resampled, eager's kernel on a CPU takes each element for its own neighbour.
        kept = size == wanted and not lowering.numerics.copies_unresampled
        if kept:
            ratio = 1.0
        elif align_corners:
            ratio = (size - 1) / (wanted - 1) if wanted > 1 else 0.0
        else:
            ratio = 1.0 / given[k] if given[k] is not None and given[k] > 0 else size / wanted

        def source(index: IndexTuple, ratio: float = ratio) -> Expr:
            position = ex.cast(as_index(index[0]), dtype)
            if align_corners:
                return ex.mul(position, ex.constant(ratio, dtype))
            return ex.maximum(_centered(lowering, index[0], ratio, dtype), ex.constant(0, dtype))

        def first(index: IndexTuple, source: Any = source, size: Any = size) -> Expr:
            return ex.minimum(ex.cast(source(index), "int64"), as_index(add(size, -1)))

        def weight(index: IndexTuple, source: Any = source, first: Any = first) -> Expr:
            rest = ex.sub(source(index), ex.cast(first(index), dtype))
            return ex.minimum(ex.maximum(rest, ex.constant(0, dtype)), ex.constant(1, dtype))

        tables.append(
            (
                lowering.compute_fresh((wanted,), "int64", first, f"position{k}"),
                lowering.compute_fresh((wanted,), dtype, weight, f"weight{k}"),
                (fresh_symbol(lowering, size), fresh_symbol(lowering, size)),
                kept,
            )
        )

    def neighbour(index: IndexTuple, far: Sequence[int]) -> Expr:
        """The one that is the near or the far of two along each dimension."""
        where: list[Size] = list(index[:2])
        bindings = []
        for k, (positions, _, symbols, kept) in enumerate(tables):
            position = positions.load((index[2 + k],))
            if far[k] and not kept:
                position = ex.add(position, ex.constant(1, "int64"))
            # What arithmetic of floats gives is kept inside of the tensor, so that loads can be proved to be.
            where.append(symbols[far[k]])
            bindings.append((symbols[far[k]].name, clamped(position, shape[2 + k])))
        return ex.cast(self.load(tuple(where), indirect=tuple(bindings)), dtype)

    def share(index: IndexTuple, k: int, far: int) -> Expr:
        weight = tables[k][1].load((index[2 + k],))
        return weight if far else ex.sub(ex.constant(1, dtype), weight)

    def nested(index: IndexTuple, far: tuple[int, ...] = ()) -> Expr:
        """Means of two along one dimension, of means of two along the next."""
        k = len(far)
        if k == spatial:
            return neighbour(index, far)
        other = ex.mul(nested(index, (*far, 1)), share(index, k, 1))
        return ex.fma(nested(index, (*far, 0)), share(index, k, 0), other)  # as eager's kernels are compiled

    def flat(index: IndexTuple) -> Expr:
        """One sum, of neighbours by products of weights."""
        terms = []
        for corner in range(1 << spatial):
            far = [corner >> k & 1 for k in range(spatial)]
            factor = functools.reduce(ex.mul, [share(index, k, far[k]) for k in range(spatial)])
            terms.append(ex.mul(factor, neighbour(index, far)))
        return functools.reduce(ex.add, terms)

    # A product with a weight of 0 is a zero, whose sign tells the two orders from each other.
    # Eager's kernels nest volumes; images on a GPU, and on a CPU large ones, but for many channels that lie innermost.
    nests, wanted = lowering.numerics.nests_images, meta.shape[2:]
    in_lanes = nests == "large" and shape[1] > 3 and _is_channels_last(self)  # type: ignore[operator]
    is_large = all(isinstance(n, int) for n in wanted) and sum(wanted) > 128
    nested_image = spatial == 2 and (nests == "all" or is_large)
    body = nested if (spatial == 3 or nested_image) and not in_lanes else flat
    return lowering.compute(meta, body)


@rule("pixel_shuffle")
def _pixel_shuffle(lowering: Lowering, self: TensorValue, upscale_factor: int) -> TensorValue:
    r = upscale_factor

    def body(index: IndexTuple) -> Expr:
        *batch, channel, row, column = index
        inner = add(mul(channel, r * r), add(mul(mod(row, r), r), mod(column, r)))
        return self.load((*batch, inner, floordiv(row, r), floordiv(column, r)))

    return lowering.compute(lowering.out, body)


@rule("pixel_unshuffle")
def _pixel_unshuffle(lowering: Lowering, self: TensorValue, downscale_factor: int) -> TensorValue:
    r = downscale_factor

    def body(index: IndexTuple) -> Expr:
        *batch, channel, row, column = index
        inner = mod(channel, r * r)
        return self.load(
            (*batch, floordiv(channel, r * r), add(mul(row, r), floordiv(inner, r)), add(mul(column, r), mod(inner, r)))
        )

    return lowering.compute(lowering.out, body)


@rule("channel_shuffle", "native_channel_shuffle")
def _channel_shuffle(lowering: Lowering, self: TensorValue, groups: int) -> TensorValue:
    each = floordiv(self.shape[1], groups)

    def body(index: IndexTuple) -> Expr:
        channel = add(mul(mod(index[1], groups), each), floordiv(index[1], groups))
        return self.load((index[0], channel, *index[2:]))

    return lowering.compute(lowering.out, body)
