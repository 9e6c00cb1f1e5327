"""How long kernels take on the device at hand: what `mode="max-autotune"` chooses tile shapes by.

Each kernel is launched on memory of its own, some 20 times in one CUDA graph, so that the host's time for a launch does
not count. Contents are zeros: every index is in range, and no kernel's time depends much on its numbers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import Kernel, Parameter
from lampwork.ir.program import DeviceKernel
from lampwork.runtime.cuda import check, driver, load_kernels

LAUNCHES = 20
REPLAYS = 5


def milliseconds(kernel: Kernel, forms: Sequence[DeviceKernel], index: int) -> list[float]:
    """The least time of one launch of each of `forms`, which are compiled and compute `kernel`, on device `index`.

    Every size must be a number. A form that the device refuses takes infinitely long.
    """
    with torch.cuda.device(index), torch.inference_mode(False), torch.no_grad():
        memory = [torch.zeros(_size_bytes(each), dtype=torch.uint8, device="cuda") for each in kernel.parameters]
        return [_time(form, memory, index) for form in forms]


def _size_bytes(parameter: Parameter) -> int:
    assert isinstance(parameter.numel, int), "sizes are numbers"
    return max(parameter.numel, 1) * ITEM_SIZE_BYTES[parameter.dtype]


def _time(form: DeviceKernel, memory: Sequence[torch.Tensor], index: int) -> float:
    (handle,) = load_kernels([form], index)
    values = [ctypes.c_uint64(each.data_ptr()) for each in memory] + [ctypes.c_uint64(0)] * form.hidden
    pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
    grid = [int(size) for size in form.grid] + [1] * (3 - len(form.grid))  # type: ignore[arg-type]
    launch = driver().cuLaunchKernel

    def run() -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        code = launch(
            ctypes.c_void_p(handle), *grid, 32 * form.num_warps, 1, 1, form.shared_bytes, stream, pointers, None
        )
        check(code, f"timing kernel {form.name}")

    try:
        run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(LAUNCHES):
                run()
        graph.replay()
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        times = []
        for _ in range(REPLAYS):
            before.record()
            graph.replay()
            after.record()
            after.synchronize()
            times.append(before.elapsed_time(after) / LAUNCHES)
        return min(times)
    except Exception:
        return float("inf")
