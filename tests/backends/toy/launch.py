"""Runs launches on memory at the addresses that the host program gives: each kernel by the interpreter."""

from __future__ import annotations

import ctypes
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from lampwork.ir.kernel_interpret import run_kernel
from lampwork.ir.program import NativeCode
from lampwork.ir.size import evaluate

TYPES = {
    "float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool",
}  # fmt: skip
#: How many kernels were run, for tests.
COUNTED = SimpleNamespace(kernels=0)


def load(native: NativeCode) -> Any:
    """An object with `runs`: functions of the addresses of the buffers' pointers and of the sizes, and of threads."""
    kernels, sequences, names = pickle.loads(native.image)
    return SimpleNamespace(runs=tuple(_runner(kernels, rows, names) for rows in sequences))


def _runner(kernels: tuple, rows: list, names: tuple[str, ...]) -> Callable[[int, int, int], None]:
    def run(buffers: int, sizes: int, threads: int) -> None:
        pointers = ctypes.cast(buffers, ctypes.POINTER(ctypes.c_void_p))
        numbers = dict(zip(names, (ctypes.c_int64 * len(names)).from_address(sizes))) if names else {}
        for number, slots, expressions in rows:
            kernel = kernels[number]
            given = {name: evaluate(each, numbers) for name, each in zip(kernel.sizes, expressions)}
            arrays = [
                _memory(pointers[slot], evaluate(parameter.numel, given), parameter.dtype)
                for slot, parameter in zip(slots, kernel.parameters)
            ]
            cells = [array.tolist() for array in arrays]
            run_kernel(kernel, cells, given)
            for array, after, parameter in zip(arrays, cells, kernel.parameters):
                if parameter.access != "read":
                    array[:] = after
            COUNTED.kernels += 1

    return run


def _memory(address: int | None, numel: int, dtype: str) -> np.ndarray:
    kind = np.dtype(dtype)
    if not numel or not address:
        return np.zeros(0, kind)
    return np.frombuffer((ctypes.c_char * (numel * kind.itemsize)).from_address(address), kind)
