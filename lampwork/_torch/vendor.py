"""Vendors' libraries: oneDNN's fused operators, and which library ATen hands a convolution to."""

from __future__ import annotations

from typing import Any

import torch

from lampwork._torch.modes import kernels_only
from lampwork._torch.subclass import tensor_without_memory


def has_vendor_products() -> bool:
    """Whether this build has oneDNN's fused linear and convolution operators (`torch.ops.mkldnn`)."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def vendor_supports_bfloat16() -> bool:
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def vendor_multiplies_bfloat16(rows: int, inner: int, columns: int) -> bool:
    """Whether ATen gives bfloat16 products [rows, inner] x [inner, columns] to oneDNN (`checksize` in Matmul.cpp)."""
    return vendor_supports_bfloat16() and rows * inner * columns > 16**3


def _convolution_backend(x: torch.Tensor, weight: torch.Tensor, bias: object, *geometry: object) -> Any:
    """ATen's choice for a convolution of these; fakes will do."""
    if x.dim() == 3 and not x.is_contiguous():
        # ATen copies such an input before it chooses, and fakes have no memory to copy.
        batch, channels, length = x.size()
        strides = (channels * length, length, 1)
        x = tensor_without_memory(type(x), (batch, channels, length), strides, x.dtype, x.device)
    with kernels_only():  # it makes views of one-dimensional images
        return torch._C._select_conv_backend(x, weight, bias, *geometry)


def convolution_path(x: torch.Tensor, weight: torch.Tensor, *geometry: object) -> str:
    """The name of ATen's choice for a convolution of these on the machine at hand: "Mkldnn", "Slow2d", "Slow3d", ...
    Which it is hangs on the processor, on the instruction sets that libraries may use, and on the number of threads.

    `geometry`: stride, padding, dilation, transposed, output padding, groups. Fakes will do. "" for what ATen refuses.
    """
    try:
        name = str(_convolution_backend(x, weight, None, *geometry)).rpartition(".")[2]
    except RuntimeError:
        return ""
    return "MkldnnTranspose" if name == "???" else name  # the one of a CPU's that the binding gives no name


def convolution_writes_bias_first(x: torch.Tensor, weight: torch.Tensor, *geometry: object) -> bool:
    """Whether ATen runs this convolution by its plain algorithm, which copies the bias over the output beforehand.

    `geometry`: stride, padding, dilation, transposed, output padding, groups. Fakes will do. False for what ATen
    refuses.
    """
    try:
        backend = _convolution_backend(x, weight, None, *geometry)
    except RuntimeError:
        return False
    return backend in (torch._C._ConvBackend.Slow2d, torch._C._ConvBackend.Slow3d)


def convolution_adds_bias_last(x: torch.Tensor, weight: torch.Tensor, *geometry: object) -> bool:
    """Whether ATen runs this convolution by cuDNN and then adds the bias in a pass of its own.

    `geometry` as in `convolution_writes_bias_first`. Fakes will do. False for what ATen refuses.
    """
    try:
        backend = _convolution_backend(x, weight, None, *geometry)
    except RuntimeError:
        return False
    return backend in (torch._C._ConvBackend.Cudnn, torch._C._ConvBackend.CudnnTranspose)


def convolution_is_channels_last(x: torch.Tensor, weight: torch.Tensor, bias: Any, *geometry: object) -> bool:
    """Whether eager's convolution of these (fakes will do) gives its result in channels-last order.

    `geometry`: stride, padding, dilation, transposed, output padding, groups. Raises what ATen raises for arguments
    that it refuses.
    """
    sizes = tuple(bias.size()) if bias is not None else None
    backend = _convolution_backend(x, weight, bias, *geometry, sizes)
    with kernels_only():
        chosen = torch._C._conv_determine_backend_memory_format(x, weight, backend)
    return chosen in (torch.channels_last, torch.channels_last_3d)


def cudnn_batch_norm_reserve_bytes(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> int:
    """How much cuDNN's batch norm keeps in training for its backward pass, on the current device
    (`torch._C._get_cudnn_batch_norm_reserve_space_size`, which reads no memory); 0 in a process without CUDA."""
    if not torch.cuda.is_available():
        return 0
    x = torch.empty_strided(shape, strides, dtype=dtype, device="meta")
    return torch._C._get_cudnn_batch_norm_reserve_space_size(x, True)
