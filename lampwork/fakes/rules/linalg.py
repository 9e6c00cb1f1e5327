"""Shape rules of factorisations, Fourier transforms and operators whose meta kernels differ from the CPU's layout.

LAPACK returns column-major matrices; the meta kernels promise row-major ones for some of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from lampwork.fakes.shapes import (
    COMPLEX_OF,
    Spec,
    Unknown,
    at_least_one,
    contiguous,
    infer,
    real_dtype,
    rule,
    wrap_dim,
)
from lampwork.fakes.strides import Scalar


def column_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a batch of column-major matrices."""
    *batch, rows, columns = shape
    strides = contiguous((*batch, columns, rows))
    return (*strides[:-2], strides[-1], strides[-2])


def _on_cpu(tensor: torch.Tensor) -> None:
    if tensor.device.type != "cpu":
        raise Unknown


@rule("_linalg_svd")
def linalg_svd(
    a: torch.Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[Spec, Spec, Spec]:
    _on_cpu(a)
    if a.dim() < 2 or not compute_uv:
        raise Unknown
    *batch, rows, columns = a.size()
    least = min(rows, columns)
    left = (*batch, rows, rows if full_matrices else least)
    right = (*batch, columns if full_matrices else least, columns)
    values = (*batch, least)
    return (
        Spec(left, column_major(left), a.dtype),
        Spec(values, contiguous(values), real_dtype(a.dtype)),
        Spec(right, column_major(right), a.dtype),
    )


@rule("linalg_eig")
def linalg_eig(a: torch.Tensor) -> tuple[Spec, Spec]:
    _on_cpu(a)
    shape = tuple(a.size())
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise Unknown
    dtype = COMPLEX_OF.get(a.dtype, a.dtype)
    return Spec(shape[:-1], contiguous(shape[:-1]), dtype), Spec(shape, column_major(shape), dtype)


@rule("geqrf")
def geqrf(a: torch.Tensor) -> tuple[Spec, Spec]:
    _on_cpu(a)
    if a.dim() < 2:
        raise Unknown
    shape = tuple(a.size())
    factors = (*shape[:-2], min(shape[-2:]))
    return Spec(shape, column_major(shape), a.dtype), Spec(factors, contiguous(factors), a.dtype)


@rule("linalg_pinv.atol_rtol_tensor")
def linalg_pinv(
    a: torch.Tensor, *, atol: torch.Tensor | None = None, rtol: torch.Tensor | None = None, hermitian: bool = False
) -> Spec:
    _on_cpu(a)
    if a.dim() < 2:
        raise Unknown
    *batch, rows, columns = a.size()
    shape = (*batch, columns, rows)
    return Spec(shape, contiguous(shape), a.dtype)


@rule("nonzero_static")
def nonzero_static(x: torch.Tensor, *, size: int, fill_value: int = -1) -> Spec:
    _on_cpu(x)
    shape = (size, x.dim())
    return Spec(shape, contiguous(shape), torch.int64)


def _with_mkl(x: torch.Tensor, dim: Any) -> list[int]:
    """The dimensions that a Fourier transform on the CPU goes over, as numbers from 0."""
    _on_cpu(x)
    if not torch.backends.mkl.is_available() or not dim:
        raise Unknown
    return [wrap_dim(each, x.dim()) for each in dim]


def _transformed(strides: Sequence[int], shape: list[int], dims: list[int]) -> tuple[Any, ...]:
    """Strides of what MKL transforms over `dims` into `shape`: these innermost, as given; the others before them, in
    the order of the input's `strides` (`_exec_fft` in ATen/native/mkl/SpectralOps.cpp)."""
    batch = [each for each in range(len(shape)) if each not in dims]
    batch.sort(key=lambda each: strides[each], reverse=True)
    made: list[Any] = [0] * len(shape)
    step: Any = 1
    for each in reversed(dims):
        made[each] = step
        step = step * at_least_one(shape[each])
    for each in reversed(batch):
        made[each] = step
        step = step * shape[each]
    return tuple(made)


@rule("_fft_c2c")
def fft_c2c(x: torch.Tensor, dim: Sequence[int], normalization: int, forward: bool) -> Spec:
    dims = _with_mkl(x, dim)
    if not x.is_complex():
        raise Unknown
    strides, shape = x.stride(), list(x.size())
    order = sorted(dims, key=lambda each: strides[each], reverse=True)
    return Spec(tuple(shape), _transformed(strides, shape, order), x.dtype)


@rule("_fft_r2c")
def fft_r2c(x: torch.Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> Spec:
    """The last of `dim` has half the elements and one more, when `onesided`, and is transformed first."""
    dims = _with_mkl(x, dim)
    if not x.is_floating_point() or x.dtype not in COMPLEX_OF:
        raise Unknown
    strides, shape = x.stride(), list(x.size())
    *others, last = dims
    if onesided:
        shape[last] = shape[last] // 2 + 1
    order = [*sorted(others, key=lambda each: strides[each], reverse=True), last]
    return Spec(tuple(shape), _transformed(strides, shape, order), COMPLEX_OF[x.dtype])


@rule("_fft_c2r")
def fft_c2r(x: torch.Tensor, dim: Sequence[int], normalization: int, last_dim_size: int) -> Spec:
    """All dimensions but the last of `dim` are transformed from complex to complex before."""
    dims = _with_mkl(x, dim)
    if len(dims) > 1:
        x = infer(torch.ops.aten._fft_c2c.default, (x, dims[:-1], normalization, False), {})
    shape = list(x.size())
    shape[dims[-1]] = last_dim_size
    return Spec(tuple(shape), _transformed(x.stride(), shape, dims[-1:]), real_dtype(x.dtype))


@rule("_trilinear")
def trilinear(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, expand1: Sequence[int], expand2: Sequence[int],
              expand3: Sequence[int], sumdim: Sequence[int], unroll_dim: int = 1) -> Spec:  # fmt: skip
    """Products of three tensors expanded to one shape, summed over `sumdim`; the layout follows ATen's, which
    multiplies and adds up slice by slice."""
    total = a.dim() + len(expand1)
    shape = [1] * total
    for tensor, expanded in ((a, expand1), (b, expand2), (c, expand3)):
        sizes = iter(tensor.size())
        for each in range(total):
            if each not in expanded:
                size = next(sizes)
                if size != 1:
                    shape[each] = size
    kept = tuple(size for each, size in enumerate(shape) if each not in sumdim)
    return Spec(kept, contiguous(kept), a.dtype)


@rule("histogram.bin_ct")
def histogram(x: torch.Tensor, bins: int = 100, *, range: Sequence[float] | None = None,
              weight: torch.Tensor | None = None, density: bool = False) -> tuple[Spec, Spec]:  # fmt: skip
    return Spec((bins,), (1,), x.dtype), Spec((bins + 1,), (1,), x.dtype)


@rule("histogram.bins_tensor")
def histogram_of_edges(
    x: torch.Tensor, bins: torch.Tensor, *, weight: torch.Tensor | None = None, density: bool = False
) -> tuple[Spec, Spec]:
    if bins.dim() != 1 or bins.numel() < 2:
        raise Unknown
    return Spec((bins.numel() - 1,), (1,), x.dtype), Spec((bins.numel(),), (1,), x.dtype)


@rule("_histogramdd_bin_edges")
def histogramdd_bin_edges(x: torch.Tensor, bins: Sequence[int], *, range: Sequence[float] | None = None,
                          weight: torch.Tensor | None = None, density: bool = False) -> list[Spec]:  # fmt: skip
    return [Spec((each + 1,), (1,), x.dtype) for each in bins]


@rule("_histogramdd_from_bin_cts")
def histogramdd_of_counts(x: torch.Tensor, bins: Sequence[int], *, range: Sequence[float] | None = None,
                          weight: torch.Tensor | None = None, density: bool = False) -> Spec:  # fmt: skip
    return Spec(tuple(bins), contiguous(tuple(bins)), x.dtype)


@rule("_histogramdd_from_bin_tensors")
def histogramdd_of_edges(
    x: torch.Tensor, bins: Sequence[torch.Tensor], *, weight: torch.Tensor | None = None, density: bool = False
) -> Spec:
    shape = tuple(each.numel() - 1 for each in bins)
    return Spec(shape, contiguous(shape), x.dtype)


@rule("segment_reduce")
def segment_reduce(data: torch.Tensor, reduce: str, *, lengths: Any = None, indices: torch.Tensor | None = None,
                   offsets: Any = None, axis: int = 0, unsafe: bool = False,
                   initial: Scalar | None = None) -> Spec:  # fmt: skip
    """One segment per length, or between two offsets. `axis` follows the dimensions of `lengths`."""
    if (lengths is None) == (offsets is None) or indices is not None:
        raise Unknown
    segments = tuple(lengths.size()) if lengths is not None else (*offsets.size()[:-1], offsets.size()[-1] - 1)
    if axis != len(segments) - 1:
        raise Unknown
    shape = (*segments, *data.size()[axis + 1 :])
    return Spec(shape, contiguous(shape), data.dtype)
