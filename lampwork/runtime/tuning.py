"""How long kernels and ATen calls take on the device at hand: what `mode="max-autotune"` chooses by.

Each is launched on memory of its own, some 20 times in one CUDA graph, so that the host's time for a launch does not
count. Floats are random: matrix units draw less power for zeros, and are faster then. Integers are zeros: every index
is in range.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch

from lampwork import _torch
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import Kernel, Parameter
from lampwork.ir.program import DeviceKernel, Extern, TensorRef
from lampwork.runtime.cuda import check, driver, load_kernels

LAUNCHES = 20
REPLAYS = 5
#: A form that took so many times as long as the fastest so far is not measured better.
HOPELESS = 2.0


class DeviceMeasure:
    """Times on CUDA device `index`. Implements `codegen.triton.tune.Measure`."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.state = f"{torch.__version__} {_torch.cuda_switches()}"

    def kernels(self, kernel: Kernel, forms: Sequence[DeviceKernel]) -> list[float]:
        """The least time of one launch of each of `forms`, which are compiled and compute `kernel`.

        Every size must be a number. A form that the device refuses takes infinitely long.
        """
        with torch.cuda.device(self.index), torch.inference_mode(False), torch.no_grad(), _torch.below_autograd():
            memory = [_memory(each) for each in kernel.parameters]
            times: list[float] = []
            for form in forms:
                times.append(_time(self._launch(form, memory), min(times, default=float("inf"))))
            return times

    def call(self, call: Extern) -> float:
        """The least time of one ATen call; infinite for one that the device refuses."""
        with torch.cuda.device(self.index), torch.inference_mode(False), torch.no_grad(), _torch.below_autograd():
            operator = _torch.overload(call.op)
            args = [_operand(value) for value in call.args]
            kwargs = {name: _operand(value) for name, value in call.kwargs}
            return _time(lambda: operator(*args, **kwargs), float("inf"))

    def _launch(self, form: DeviceKernel, memory: Sequence[torch.Tensor]) -> Callable[[], Any]:
        (handle,) = load_kernels([form], self.index)
        values = [ctypes.c_uint64(each.data_ptr()) for each in memory] + [ctypes.c_uint64(0)] * form.hidden
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        grid = [int(size) for size in form.grid] + [1] * (3 - len(form.grid))  # type: ignore[arg-type]
        launch = driver().cuLaunchKernel

        def run() -> list:
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            threads = 32 * form.num_warps
            code = launch(ctypes.c_void_p(handle), *grid, threads, 1, 1, form.shared_bytes, stream, pointers, None)
            check(code, f"timing kernel {form.name}")
            return values  # what `pointers` points to

        return run


def _memory(parameter: Parameter) -> torch.Tensor:
    assert isinstance(parameter.numel, int), "sizes are numbers"
    return _filled(max(parameter.numel, 1), parameter.dtype)


def _filled(numel: int, dtype: str) -> torch.Tensor:
    made = torch.zeros(numel * ITEM_SIZE_BYTES[dtype], dtype=torch.uint8, device="cuda").view(getattr(torch, dtype))
    if made.is_floating_point() and made.itemsize > 1:
        made.normal_(generator=torch.Generator("cuda").manual_seed(0))  # the program's generator stays where it is
    return made


def _operand(value: Any) -> Any:
    if isinstance(value, TensorRef):
        numel = 1 + sum((extent - 1) * stride for extent, stride in zip(value.shape, value.strides))  # type: ignore[operator]
        return _filled(numel, value.dtype).as_strided(value.shape, value.strides)  # type: ignore[arg-type]
    return value


def _time(run: Callable[[], Any], best: float) -> float:
    """Milliseconds of `run`, which launches something on the current stream; infinite where it fails."""
    try:
        run()
        torch.cuda.synchronize()
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        if best < float("inf"):
            before.record()
            run()
            run()
            after.record()
            after.synchronize()
            once = before.elapsed_time(after) / 2
            # The host's time for a launch counts here, 20 microseconds at most.
            if once > HOPELESS * best + 0.02:
                return once
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(LAUNCHES):
                run()
        graph.replay()
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
