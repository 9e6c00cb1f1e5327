"""Derivatives of pooling and resampling, as sums over the windows that an element lies in. Nothing is scattered.

    avg_pool2d_backward, windows every s      dx[h] = sum over q of g[(h + pad) // s - q] / size, if that one reaches h
    max_pool2d_with_indices_backward          the same sum of the windows whose maximum is at h

Few windows an element are written out, so that the sum is one pointwise nest; more of them are a reduction. On a CPU,
lanes are then neighbours in memory only where channels are innermost: other layouts are left to ATen, which scatters.
(AMD EPYC, one core, ms, 16x64x56x56, ATen / ours: 3x3 maximum every 2, rows innermost 0.9/18, channels innermost
2.3/2.5; 2x2 average 5.8/6.1 and 1.6/0.4; 3x3 average 7.3/11.6 and 2.0/1.0; doubling 8.5/14.6 and 3.5/3.1.)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from lampwork.ir.dtype import FLOATING, compute_dtype
from lampwork.ir.loops import Constant, Expr
from lampwork.ir.size import Size, add, floordiv, maximum, minimum, mul
from lampwork.lower import expressions as ex
from lampwork.lower.expressions import as_index
from lampwork.lower.lower import Lowering
from lampwork.lower.pooling import nearest_source, per_dimension
from lampwork.lower.rules import rule
from lampwork.lower.values import IndexTuple, TensorMeta, TensorValue

#: So many windows an element are written out.
WRITTEN_OUT = 4


def _lanes_apart(lowering: Lowering) -> bool:
    """Whether a CPU's lanes would load from scattered places: the result's channels are not innermost."""
    meta = lowering.out
    return not lowering.kernels.scattered_loads and not (
        len(meta.shape) > 3 and meta.strides[1] == 1 and meta.shape[1] != 1
    )


def _summed(
    lowering: Lowering, counts: tuple[int, ...], term: Callable[[IndexTuple, tuple[Size, ...]], Expr], dtype: str
) -> TensorValue:
    """The result whose element `index` is the sum of `term(index, q)` for all q below `counts`."""
    meta = lowering.out
    total = 1
    for count in counts:
        total *= count
    if total <= WRITTEN_OUT:

        def body(index: IndexTuple) -> Expr:
            terms = [term(index, chosen) for chosen in itertools.product(*[range(count) for count in counts])]
            value: Expr = ex.like(0, terms[0])  # as eager adds to zeros: the sum of -0 alone is 0
            for each in terms:
                value = ex.add(value, each)
            return value

        return lowering.compute(meta, body)
    rank = len(meta.shape)
    summed = lowering.reduce(
        "sum",
        (*meta.shape, *counts),
        range(rank, rank + len(counts)),
        lambda index: term(index[:rank], index[rank:]),
        dtype,
        "" if dtype == meta.dtype else "sum",
        TensorMeta(dtype, meta.shape, meta.strides),
    )
    return summed if dtype == meta.dtype else lowering.compute(meta, summed.load)


class _Windows:
    """The windows of pooling over the last two or three dimensions, seen from the elements."""

    def __init__(self, grad_output: TensorValue, self_: TensorValue, count: int, *geometry: Any) -> None:
        kernel, stride, padding, dilation = geometry
        self.kernel = per_dimension(kernel, count)
        self.stride = per_dimension(stride, count, self.kernel)
        self.padding, self.dilation = per_dimension(padding, count), per_dimension(dilation, count)
        self.first = len(self_.shape) - count
        self.inputs, self.outputs = self_.shape[self.first :], grad_output.shape[self.first :]
        self.counts = tuple(
            -(-(d * (k - 1) + 1) // s) for k, s, d in zip(self.kernel, self.stride, self.dilation, strict=True)
        )

    def window(self, index: IndexTuple, back: tuple[Size, ...]) -> tuple[tuple[Size, ...], Expr | None]:
        """The window `back` places before the last that may hold element `index`, and whether there is one that
        reaches it (its kernel may still step over it)."""
        places: list[Size] = []
        mask: Expr | None = None
        for k, position in enumerate(index[self.first :]):
            shifted = add(position, self.padding[k])
            place = add(floordiv(shifted, self.stride[k]), mul(back[k], -1))
            inner = add(shifted, mul(place, -self.stride[k]))
            reach = self.dilation[k] * (self.kernel[k] - 1) + 1
            for condition in (
                ex.at_least(place, 0),
                ex.below(place, self.outputs[k]),
                None if self.stride[k] * (self.counts[k]) <= reach else ex.below(inner, reach),
            ):
                mask = ex.both(mask, condition)
            places.append(place)
        return (*index[: self.first], *places), None if type(mask) is Constant and mask.value else mask

    def size(self, places: tuple[Size, ...], count_include_pad: bool) -> Size:
        """How many elements an average is over."""
        size: Size = 1
        for k, place in enumerate(places[self.first :]):
            start = add(mul(place, self.stride[k]), -self.padding[k])
            end = minimum(add(start, self.kernel[k]), add(self.inputs[k], self.padding[k]))
            if not count_include_pad:
                start, end = maximum(start, 0), minimum(end, self.inputs[k])
            size = mul(size, add(end, mul(start, -1)))
        return size


def _masked(mask: Expr | None, value: Callable[[Expr | None], Expr], dtype: str) -> Expr:
    zero = ex.constant(0, dtype)
    if type(mask) is Constant and not mask.value:
        return zero
    found = value(mask)
    return found if mask is None else ex.where(mask, found, zero)


@rule("avg_pool2d_backward", "avg_pool3d_backward")
def _avg_pool(
    lowering: Lowering,
    grad_output: TensorValue,
    self: TensorValue,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: int | Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> TensorValue:
    if self.dtype not in FLOATING or 0 in self.shape:
        return NotImplemented
    count = 3 if "3d" in lowering.origin.op else 2
    windows = _Windows(grad_output, self, count, kernel_size, stride, padding, 1)
    if _lanes_apart(lowering) and windows.counts != (1,) * count:
        return NotImplemented
    dtype = compute_dtype(self.dtype)
    even = not ceil_mode and (count_include_pad or not any(windows.padding))
    numel = 1
    for each in windows.kernel:
        numel *= each

    def term(index: IndexTuple, back: tuple[Size, ...]) -> Expr:
        places, mask = windows.window(index, back)
        size = numel if even else windows.size(places, count_include_pad)
        divisor = lowering.operand(divisor_override if divisor_override is not None else size, (), (), dtype)
        return _masked(mask, lambda where: ex.div(ex.cast(grad_output.load(places, where), dtype), divisor), dtype)

    return _summed(lowering, windows.counts, term, dtype)


@rule("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def _max_pool(
    lowering: Lowering,
    grad_output: TensorValue,
    self: TensorValue,
    kernel_size: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool,
    indices: TensorValue,
) -> TensorValue:
    if self.dtype not in FLOATING or 0 in self.shape or not lowering.kernels.scattered_loads:
        return NotImplemented
    count = 3 if "3d" in lowering.origin.op else 2
    windows = _Windows(grad_output, self, count, kernel_size, stride, padding, dilation)
    dtype = compute_dtype(self.dtype)

    def term(index: IndexTuple, back: tuple[Size, ...]) -> Expr:
        places, mask = windows.window(index, back)
        here: Size = 0
        for position, extent in zip(index[windows.first :], windows.inputs):
            here = add(mul(here, extent), position)

        def value(where: Expr | None) -> Expr:
            is_here = ex.compare("eq", indices.load(places, where, -1 if where is not None else 0), as_index(here))
            return ex.where(is_here, ex.cast(grad_output.load(places, where), dtype), ex.constant(0, dtype))

        return _masked(mask, value, dtype)

    return _summed(lowering, windows.counts, term, dtype)


@rule("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward")
def _adaptive_avg_pool(lowering: Lowering, grad_output: TensorValue, self: TensorValue) -> TensorValue:
    """Where windows are of equal size and touch: an average pool."""
    count = 3 if "3d" in lowering.origin.op else 2
    first = len(self.shape) - count
    kernel = []
    for size, wanted in zip(self.shape[first:], grad_output.shape[first:]):
        if not isinstance(size, int) or not isinstance(wanted, int) or wanted == 0 or size % wanted:
            return NotImplemented
        kernel.append(size // wanted)
    return _avg_pool(lowering, grad_output, self, kernel, kernel, 0, False, True, None)


@rule(
    "upsample_nearest1d_backward", "upsample_nearest2d_backward", "upsample_nearest3d_backward",
    "_upsample_nearest_exact1d_backward", "_upsample_nearest_exact2d_backward", "_upsample_nearest_exact3d_backward",
)  # fmt: skip
def _upsample_nearest(
    lowering: Lowering, grad_output: TensorValue, output_size: Any, input_size: Any, *scales: Any, **named: Any
) -> TensorValue:
    """Where each element was repeated a whole number of times."""
    inputs, outputs = lowering.out.shape[2:], grad_output.shape[2:]
    if (
        lowering.out.dtype not in FLOATING
        or 0 in lowering.out.shape
        or 0 in outputs
        or (named and scales)
        or _lanes_apart(lowering)
    ):
        return NotImplemented
    given = list(scales) + list(named.values())
    given += [None] * (len(inputs) - len(given))
    factors = []
    for size, wanted, scale in zip(inputs, outputs, given):
        if nearest_source(size, wanted, scale, "exact" in lowering.origin.op) is None or wanted % size:
            return NotImplemented
        factors.append(wanted // size)
    dtype = compute_dtype(lowering.out.dtype)

    def term(index: IndexTuple, place: tuple[Size, ...]) -> Expr:
        where = [add(mul(at, factor), inner) for at, factor, inner in zip(index[2:], factors, place)]
        return ex.cast(grad_output.load((*index[:2], *where)), dtype)

    return _summed(lowering, tuple(factors), term, dtype)
