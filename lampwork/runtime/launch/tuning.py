"""How long kernels and ATen calls take on the device at hand: what `mode="max-autotune"` chooses by.

Each is launched on memory of its own, some 20 times in one CUDA graph, so that the host's time for a launch does not
count. Floats are random: matrix units draw less power for zeros, and are faster then. Integers are zeros: every index
is in range.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from lampwork import _torch
from lampwork.errors import LampworkError
from lampwork.ir.alternative import Alternative
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import Kernel, Parameter
from lampwork.ir.program import DeviceKernel, Extern, TensorRef
from lampwork.ir.size import span
from lampwork.runtime.launch.cuda import check, driver, load_kernels

DEVICE = "cuda"
LAUNCHES = 20
REPLAYS = 5
#: How often alternatives take turns, and how long a turn is: together long enough for clocks to settle under the load.
TURNS, TURN_MILLISECONDS = 15, 5.0
#: A form that took so many times as long as the fastest so far is not measured better.
HOPELESS = 2.0


class DeviceMeasure:
    """Times on CUDA device `index`. Implements `codegen.triton.tune.Measure`."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.state = f"{torch.__version__} {_torch.cuda_switches()}"

    def kernels(self, kernel: Kernel, forms: Sequence[DeviceKernel]) -> list[float]:
        """The least time of one launch of each of `forms`, which are compiled and compute `kernel`.

        Every size must be a number. A form that the device refuses, or has no memory for, takes infinitely long.
        """

        def times() -> list[float]:
            memory = [_memory(each) for each in kernel.parameters]
            found: list[float] = []
            for form in forms:
                found.append(_time(self._launch(form, memory), min(found, default=float("inf"))))
            return found

        return self._measured(times, len(forms))

    def call(self, call: Extern) -> float:
        """The least time of one ATen call; infinite for one that the device refuses."""

        def times() -> list[float]:
            operator = _torch.overload(call.op)
            args = [_operand(value) for value in call.args]
            kwargs = {name: _operand(value) for name, value in call.kwargs}
            return [_time(lambda: operator(*args, **kwargs), float("inf"))]

        return self._measured(times, 1)[0]

    def turns(self, rivals: Sequence[tuple[Alternative, Sequence[DeviceKernel]]]) -> list[float]:
        """The median time of each alternative when they take turns, all on the same memory; infinite where the device
        refuses one."""

        def times() -> list[float]:
            memory = _shared_memory([alternative for alternative, _ in rivals])
            runs = [self._sequence(alternative, forms, memory) for alternative, forms in rivals]
            graphs = [_repeated(run) for run in runs]
            rounds = [[_replayed(graph) / launches for graph, launches in graphs] for _ in range(TURNS)]
            return [sorted(column)[TURNS // 2] for column in zip(*rounds)]

        return self._measured(times, len(rivals))

    def _measured(self, times: Callable[[], list[float]], count: int) -> list[float]:
        """What `times` finds on the device, in a state of PyTorch's that the program does not see."""
        with torch.cuda.device(self.index), torch.inference_mode(False), torch.no_grad(), _torch.below_autograd():
            try:
                return times()
            except (RuntimeError, LampworkError):  # no memory left, or a launch that is refused
                return [float("inf")] * count

    def _sequence(
        self, alternative: Alternative, forms: Sequence[DeviceKernel], memory: dict[str, torch.Tensor]
    ) -> Callable[[], object]:
        """Calls, then kernels, on the buffers in `memory`."""
        steps: list[Callable[[], object]] = []
        for call, result in zip(alternative.calls, alternative.results, strict=True):
            operator = _torch.overload(call.out_variant or call.op)
            args = [_view(value, memory) for value in call.args]
            kwargs = {name: _view(value, memory) for name, value in call.kwargs}
            if call.out_variant is not None:
                (out,) = _torch.out_arguments(call.out_variant)
                kwargs[out] = _view(result, memory)
            steps.append(functools.partial(operator, *args, **kwargs))
        for form, names in zip(forms, alternative.buffers, strict=True):
            steps.append(self._launch(form, [memory[name] for name in names]))

        def run() -> None:
            for step in steps:
                step()

        return run

    def _launch(self, form: DeviceKernel, memory: Sequence[torch.Tensor]) -> Callable[[], object]:
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
    made = torch.zeros(numel * ITEM_SIZE_BYTES[dtype], dtype=torch.uint8, device=DEVICE).view(getattr(torch, dtype))
    if made.is_floating_point() and made.itemsize > 1:
        made.normal_(generator=torch.Generator(DEVICE).manual_seed(0))  # the program's generator stays where it is
    return made


def _operand(value: object) -> Any:
    if isinstance(value, TensorRef):
        return _filled(span(value.shape, value.strides), value.dtype).as_strided(value.shape, value.strides)
    return value


def _shared_memory(alternatives: Sequence[Alternative]) -> dict[str, torch.Tensor]:
    """Memory for every buffer that an alternative touches, by name."""
    needed: dict[str, tuple[int, str]] = {}

    def need(name: str, numel: Any, dtype: str) -> None:
        known, _ = needed.get(name, (1, dtype))
        needed[name] = (max(known, numel), dtype)

    for alternative in alternatives:
        for kernel, names in zip(alternative.kernels, alternative.buffers):
            for parameter, name in zip(kernel.parameters, names):
                need(name, parameter.numel, parameter.dtype)
        for call, result in zip(alternative.calls, alternative.results):
            for ref in (*call.args, *(value for _, value in call.kwargs), result):
                if isinstance(ref, TensorRef):
                    need(ref.buffer, ref.offset + span(ref.shape, ref.strides), ref.dtype)
    return {name: _filled(numel, dtype) for name, (numel, dtype) in needed.items()}


def _view(value: object, memory: dict[str, torch.Tensor]) -> Any:
    if isinstance(value, TensorRef):
        return memory[value.buffer].as_strided(value.shape, value.strides, value.offset)
    return value


def _repeated(run: Callable[[], object]) -> tuple[torch.cuda.CUDAGraph, int]:
    """A graph that runs `run` for about `TURN_MILLISECONDS`, and how often that is."""
    run()
    torch.cuda.synchronize()
    graph = _captured(run, 1)
    launches = max(1, min(LAUNCHES, int(TURN_MILLISECONDS / max(_replayed(graph), 1e-3))))
    return _captured(run, launches), launches


def _captured(run: Callable[[], object], launches: int) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(launches):
            run()
    graph.replay()
    return graph


def _replayed(graph: torch.cuda.CUDAGraph) -> float:
    """Milliseconds of one replay."""
    before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    before.record()
    graph.replay()
    after.record()
    after.synchronize()
    return before.elapsed_time(after)


def _time(run: Callable[[], object], best: float) -> float:
    """Milliseconds of `run`, which launches something on the current stream; infinite where it fails."""
    try:
        run()
        torch.cuda.synchronize()
        if best < float("inf"):
            before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            before.record()
            run()
            run()
            after.record()
            after.synchronize()
            once = before.elapsed_time(after) / 2
            # The host's time for a launch counts here, 20 microseconds at most.
            if once > HOPELESS * best + 0.02:
                return once
        graph = _captured(run, LAUNCHES)
        return min(_replayed(graph) / LAUNCHES for _ in range(REPLAYS))
    except Exception:
        return float("inf")
