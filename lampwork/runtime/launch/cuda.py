"""Programs on CUDA devices: kernels loaded through the driver, launches that fail, streams. No Triton, no LLVM.

Kernels are loaded into the context that torch uses on the device (its primary context), each once per process and
device whatever program it belongs to, and stay loaded: what is in flight on some stream never loses its code.
"""

from __future__ import annotations

import ctypes
import importlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch

from lampwork import _torch
from lampwork.errors import LampworkError
from lampwork.ir.program import UNALIGNED, DeviceKernel, NativeCode, device_index
from lampwork.ir.size import span
from lampwork.runtime.launch.arenas import StreamLeases, given_results, passing
from lampwork.runtime.launch.native import LoadedCode

#: Shared memory that a kernel may have without asking, and how it asks for more.
PLAIN_SHARED_BYTES = 48 << 10
_MAX_DYNAMIC_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_INVALID_CONTEXT = 201
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING

#: A pointer of a sequence that comes from outside: (place in the pointer table, tensor, whether kernels write to it).
Outside = tuple[int, torch.Tensor, bool]

_lock = threading.Lock()
_handles: dict[tuple[int, bytes, str], int] = {}
_contexts: dict[int, int] = {}


def load(native: NativeCode) -> LoadedCode:
    """The native code of a program for a GPU, its kernels loaded on the device.

    Raises `LampworkError` where the process has no such device, it is of another architecture, or the driver refuses a
    kernel.
    """
    index = device_index(native.device)
    if not torch.cuda.is_available() or index >= torch.cuda.device_count():
        raise LampworkError(f"this process has no device {native.device}")
    major, minor = torch.cuda.get_device_capability(index)
    for kernel in native.kernels:
        if kernel.arch != f"sm_{major}{minor}":
            raise LampworkError(f"{native.device} is of architecture sm_{major}{minor}, the code is for {kernel.arch}")
    addresses = {f"kernel:{i}": handle for i, handle in enumerate(load_kernels(native.kernels, index))}
    addresses |= {f"shared:{i}": kernel.shared_bytes for i, kernel in enumerate(native.kernels)}
    addresses["cuda:cuLaunchKernel"] = ctypes.cast(driver().cuLaunchKernel, ctypes.c_void_p).value or 0
    return LoadedCode(native, addresses)


def load_kernels(kernels: Sequence[DeviceKernel], index: int) -> list[int]:
    """The driver's handle of each kernel on a device."""
    with _lock, context(index):
        for kernel in kernels:
            key = (index, kernel.binary, kernel.entry)
            if key not in _handles:
                _handles[key] = _load_kernel(kernel)
        return [_handles[index, kernel.binary, kernel.entry] for kernel in kernels]


def _load_kernel(kernel: DeviceKernel) -> int:
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    what = f"loading kernel {kernel.name}"
    check(driver().cuModuleLoadData(ctypes.byref(module), kernel.binary), what)
    check(driver().cuModuleGetFunction(ctypes.byref(function), module, kernel.entry.encode()), what)
    if kernel.shared_bytes > PLAIN_SHARED_BYTES:
        what = f"giving kernel {kernel.name} {kernel.shared_bytes} bytes of shared memory"
        check(driver().cuFuncSetAttribute(function, _MAX_DYNAMIC_SHARED_BYTES, kernel.shared_bytes), what)
    return function.value or 0


# The driver -----------------------------------------------------------------------------------------------------------


@lru_cache(1)
def driver() -> Any:
    """The CUDA driver's library. Raises `LampworkError` where there is none."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise LampworkError(f"the CUDA driver cannot be loaded: {error}") from error
    pointer = ctypes.c_void_p
    library.cuModuleLoadData.argtypes = [pointer, ctypes.c_char_p]
    library.cuModuleGetFunction.argtypes = [pointer, pointer, ctypes.c_char_p]
    library.cuFuncSetAttribute.argtypes = [pointer, ctypes.c_int, ctypes.c_int]
    library.cuDevicePrimaryCtxRetain.argtypes = [pointer, ctypes.c_int]
    library.cuGetErrorName.argtypes = [ctypes.c_int, pointer]
    library.cuGetErrorString.argtypes = [ctypes.c_int, pointer]
    library.cuCtxSetCurrent.argtypes = [pointer]
    library.cuCtxPushCurrent_v2.argtypes = [pointer]
    library.cuCtxPopCurrent_v2.argtypes = [pointer]
    library.cuStreamCreate.argtypes = [pointer, ctypes.c_uint]
    return library


@contextmanager
def context(index: int) -> Iterator[None]:
    """The context of torch's device `index` is the driver's current one meanwhile."""
    check(driver().cuCtxPushCurrent_v2(_context(index)), f"using cuda:{index}")
    try:
        yield
    finally:
        check(driver().cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())), f"using cuda:{index}")


def _context(index: int) -> int:
    known = _contexts.get(index)
    if known is None:
        torch.cuda.init()
        found = ctypes.c_void_p()
        check(driver().cuDevicePrimaryCtxRetain(ctypes.byref(found), index), f"using cuda:{index}")
        known = _contexts[index] = found.value or 0
    return known


def new_stream(index: int) -> int:
    """A stream that is never destroyed, for work that does not wait for the default stream's."""
    found = ctypes.c_void_p()
    with context(index):
        check(driver().cuStreamCreate(ctypes.byref(found), _NON_BLOCKING), f"making a stream on cuda:{index}")
    return found.value or 0


def check(code: int, what: str) -> None:
    """Raises `LampworkError` with the driver's words unless `code` says success."""
    if code:
        raise LampworkError(f"{what} failed: {error_text(code)}")


def error_text(code: int) -> str:
    """The driver's words for an error code."""
    words = []
    for ask in (driver().cuGetErrorName, driver().cuGetErrorString):
        found = ctypes.c_char_p()
        if ask(code, ctypes.byref(found)) == 0 and found.value:
            words.append(found.value.decode())
    return ": ".join(words) or f"CUDA error {code}"


# Launches that did not run through ------------------------------------------------------------------------------------


def run_again(answer: int, run: Callable, lease: Any, stream: int, outside: Sequence[Outside], index: int) -> None:
    """Does what can be done about a sequence that did not answer 0, with `outside` its pointers from outside.

    Tensors that kernels cannot read as they lie are copied to memory they can, and back if they were written to. Raises
    `RuntimeError` with the driver's words for a launch that failed.
    """
    if answer & 0xFFFFFFFF == UNALIGNED:
        answer = _run_on_copies(run, lease, stream, outside)
    if answer == _INVALID_CONTEXT:
        # The first launch of all: this thread has called nothing yet that made the device's context current.
        check(driver().cuCtxSetCurrent(_context(index)), f"using cuda:{index}")
        answer = run(lease.address, lease.sizes_address, stream)
        if answer & 0xFFFFFFFF == UNALIGNED:
            answer = _run_on_copies(run, lease, stream, outside)
    if answer:
        code, position = answer & 0xFFFFFFFF, answer >> 32
        raise RuntimeError(f"CUDA refused to launch kernel {position} of a compiled program: {error_text(code)}")


def _run_on_copies(run: Callable, lease: Any, stream: int, outside: Sequence[Outside]) -> int:
    """Runs the sequence with copies in place of the tensors that are not aligned: one more pass over these.

    The copies are allocated on the stream that they are used on, so that they may be given back at once.
    """
    copies = []
    with _torch.below_autograd():
        for place, tensor, written in outside:
            if lease.pointers[place] & 15 and tensor.numel():
                original = tensor.as_strided(tensor.shape, tensor.stride())
                whole = original.as_strided((span(original.shape, original.stride()),), (1,))
                copy = torch.empty_like(whole).copy_(whole)
                copies.append((place, lease.pointers[place], original, copy, written))
    try:
        for place, _, _, copy, _ in copies:
            lease.pointers[place] = copy.data_ptr()
        answer = run(lease.address, lease.sizes_address, stream)
    finally:
        for place, pointer, *_ in copies:
            lease.pointers[place] = pointer
    if not answer:
        with _torch.below_autograd():
            for _, _, original, copy, written in copies:
                if written:
                    original.copy_(copy.as_strided(original.shape, original.stride(), 0))
    return answer


# What host functions call ---------------------------------------------------------------------------------------------


def host_names(device: str) -> Mapping[str, object]:
    """The names that host functions of programs on a GPU use, beside those of all programs."""
    index = device_index(device)

    def again(answer: int, run: Callable, lease: object, stream: int, outside: Sequence[Outside]) -> None:
        run_again(answer, run, lease, stream, outside, index)

    names = {"current_stream": _torch.cuda_stream_reader(), "empty": _torch.empty_cuda(), "again": again}
    return {**names, "passing": passing, "given_results": given_results}


def on_device(call: Callable[..., tuple], device: str) -> Callable[..., tuple]:
    """`call` with the device current meanwhile: only where the process has several can another one be."""
    if torch.cuda.device_count() < 2:
        return call
    index = device_index(device)

    def guarded(values: Sequence[object], generation: object = None) -> tuple:
        if _torch.current_cuda_device() == index:
            return call(values, generation)
        with torch.cuda.device(index):
            return call(values, generation)

    return guarded


# What else `Backend.launch` names -------------------------------------------------------------------------------------


def leases(make: Callable[[torch.Tensor], Any], workspace_bytes: int, device: str) -> StreamLeases:
    """The memory of calls, by stream."""
    return StreamLeases(make, workspace_bytes, device, _torch.is_cuda_capturing)


def settle(device: str) -> None:
    """Any stream may read what was written by now."""
    torch.cuda.synchronize(device)


def generator_states(device: str) -> tuple[torch.Tensor, ...]:
    return (torch.cuda.get_rng_state(device),)


def restore_generators(states: tuple[torch.Tensor, ...], device: str) -> None:
    torch.cuda.set_rng_state(states[0], device)


def is_capturing() -> bool:
    return _torch.is_cuda_capturing()


def graphs(device: str) -> Any:
    """What CUDA graphs need of the device."""
    from lampwork.runtime.graphs.cuda_capture import cuda_device

    return cuda_device(device_index(device))


def ready(device: str) -> None:
    """The state that guards of programs for the device read is as such programs leave it."""
    _torch.settle_attention_order()


def prepare(device: torch.device) -> None:
    """The processes that compile kernels start; they get ready while a call is captured."""
    if torch.version.hip is None:
        _torch.settle_attention_order()
        major, minor = torch.cuda.get_device_capability(device)
        importlib.import_module("lampwork.codegen.triton.compile").start_compilers(f"sm_{major}{minor}")


def measure(device: str) -> Any:
    """What measures kernels on the device."""
    from lampwork.runtime.launch.tuning import DeviceMeasure

    return DeviceMeasure(device_index(device))
