"""CUDA: streams, allocation past the dispatcher, and what capture settles beforehand."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import torch

from lampwork._torch.modes import kernels_only


@contextlib.contextmanager
def literals_start_on_cpu() -> Iterator[None]:
    """While active, `torch.tensor(data, device="cuda")` makes a CPU tensor and copies it by an operator.

    A dispatch mode then sees the data and the copy; otherwise it would be handed a tensor on the device.
    """
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        yield
    finally:
        torch._C._set_only_lift_cpu_tensors(before)


def cuda_stream_reader() -> Callable[[int], int]:
    """What reads the handle of a device's current stream; `torch.cuda.current_stream` makes an object for it."""
    return torch._C._cuda_getCurrentRawStream


def empty_cuda() -> Callable[[tuple[int, ...], tuple[int, ...], torch.dtype], torch.Tensor]:
    """What makes an uninitialised tensor of a shape, strides and type on the current device, past the dispatcher."""
    direct = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)
    if direct is not None:
        return direct
    return lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype, device="cuda")


def is_cuda_capturing() -> bool:
    """Whether the current stream is being captured into a CUDA graph."""
    return torch._C._cuda_isCurrentStreamCapturing()


def clear_library_workspaces() -> None:
    """Takes the workspaces that cuBLAS has from ATen, of all threads and streams; its next call there makes a new one.

    Whoever calls this knows that no call is being made, and no graph uses one that is not memory of its own.
    """
    torch._C._cuda_clearCublasWorkspaces()


@contextlib.contextmanager
def allocating_from(index: int, pool: tuple[int, int]) -> Iterator[None]:
    """What this thread allocates on the device meanwhile comes from the pool of that name, on whatever stream.

    The pool, with all its memory, then stays until `release_pool`, besides as long as graphs have it.
    """
    torch._C._cuda_beginAllocateCurrentThreadToPool(index, pool)
    try:
        yield
    finally:
        torch._C._cuda_endAllocateToPool(index, pool)


def release_pool(index: int, pool: tuple[int, int]) -> None:
    """Undoes one `allocating_from`: the pool goes with the last graph that has it."""
    torch._C._cuda_releasePool(index, pool)


_attention_order_settled = False


def settle_attention_order() -> None:
    """Has PyTorch decide in which order it tries attention kernels, as the first choice among them in a process does.

    That order is guarded (`cuda_state`), and the first choice might be a capture's.
    """
    global _attention_order_settled
    if _attention_order_settled or not torch.cuda.is_initialized() or is_cuda_capturing():
        return
    with kernels_only(), torch._C.DisableTorchFunction():
        x = torch.empty((1, 1, 1, 8), dtype=torch.float16, device="cuda")
        torch.ops.aten._fused_sdp_choice.default(x, x, x)
    _attention_order_settled = True
