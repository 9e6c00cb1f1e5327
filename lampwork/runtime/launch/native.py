"""Loads a `NativeCode` image: maps it, resolves the addresses it asks for, and hands out callables. No LLVM.

An image is position-independent and refers to nothing by name; what it needs from outside comes in a table of
addresses that each call passes.

Each launch sequence has two entries: a plain C function, and one with the signature of a CPython `METH_FASTCALL`
function, which makes a built-in function whose `self` is a `bytes` object that holds the table. The second costs a
third of a call through ctypes.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lampwork.backends import backend_of
from lampwork.errors import LampworkError
from lampwork.ir.program import NativeCode
from lampwork.ir.target import machine_features

#: `void run(void** externals, void** buffers, int64* sizes, int64 threads)`. ctypes releases the GIL during the call.
_RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
_ANSWERING_RUN = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)

_libraries: dict[str, object] = {}
_addresses: dict[str, int] = {}


class LoadedCode:
    """An image in memory. `runs[k](buffers, sizes, threads)` runs sequence k.

    `buffers` and `sizes` are addresses of arrays: of pointers in the order of `NativeCode.buffer_order`, and of int64.
    The code stays mapped while this object, or any of `runs`, is alive. `addresses`: externals that are known already.

    Code for a GPU takes a CUDA stream for `threads`, and `runs` answer what `NativeCode` says (None or 0: all is well).
    """

    def __init__(self, native: NativeCode, addresses: Mapping[str, int] | None = None) -> None:
        missing = set(native.features) - machine_features()
        if missing:
            raise LampworkError(
                f"this machine code needs {', '.join(sorted(missing))}, which this processor lacks; compile again here"
            )
        self.memory = ExecutableMemory(native.image)
        self.externals = external_table(native.externals, addresses or {})
        self.answers = backend_of(native.device).streams
        self.runs: tuple[Callable[[int, int, int], int | None], ...]
        if native.calls and sys.implementation.name == "cpython" and bytes.__basicsize__ == 33:
            self.runs = tuple(self._builtin(offset) for offset in native.calls)
        else:
            self.runs = tuple(self._foreign(offset) for offset in native.runs)

    def _builtin(self, offset: int) -> Callable[[int, int, int], int | None]:
        """The entry at `offset` as a built-in function, which keeps the mapping alive."""
        definition = _definition(self.memory.address + offset)
        create = ctypes.pythonapi.PyCFunction_NewEx
        create.restype = ctypes.py_object
        create.argtypes = [ctypes.c_void_p, ctypes.py_object, ctypes.py_object]
        made = create(ctypes.addressof(definition), bytes(self.externals), self.memory)
        watch = weakref.ref(made, _give_back)
        _definitions[id(watch)] = (watch, definition)
        return made

    def _foreign(self, offset: int) -> Callable[[int, int, int], int | None]:
        """The entry at `offset` through ctypes."""
        function = (_ANSWERING_RUN if self.answers else _RUN)(self.memory.address + offset)
        table = ctypes.addressof(self.externals)

        def run(buffers: int, sizes: int, threads: int, _function: Any = function, _table: int = table) -> int | None:
            return _function(_table, buffers, sizes, threads)

        run.__dict__["code"] = self
        return run


class _MethodDefinition(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("documentation", ctypes.c_char_p),
    )


#: Definitions of functions that are alive, by the id of a weak reference to the function; and those to be used again.
#: CPython reads a definition once more while it frees the function, after the weak reference's call: so its memory is
#: never freed, and is used again with the same flags.
_definitions: dict[int, tuple[weakref.ref, _MethodDefinition]] = {}
_spare_definitions: deque[_MethodDefinition] = deque()


def _definition(address: int) -> _MethodDefinition:
    try:
        definition = _spare_definitions.pop()
    except IndexError:
        return _MethodDefinition(b"run", address, 0x80, None)  # METH_FASTCALL
    definition.function = address
    return definition


def _give_back(watch: weakref.ref) -> None:
    _spare_definitions.append(_definitions.pop(id(watch))[1])


class ExecutableMemory:
    """Bytes mapped to be read and executed, never written. `address` of the first."""

    def __init__(self, image: bytes) -> None:
        size = max(len(image), 1)
        self._map = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE)
        self._map.write(image)
        self._view = ctypes.c_char.from_buffer(self._map)  # pins the mapping for as long as this object lives
        self.address = ctypes.addressof(self._view)
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        if protect(ctypes.c_void_p(self.address), ctypes.c_size_t(size), mmap.PROT_READ | mmap.PROT_EXEC):
            raise LampworkError(f"cannot make generated code executable (errno {ctypes.get_errno()})")


def external_table(names: Sequence[str], addresses: Mapping[str, int]) -> Any:
    """A ctypes array with the addresses of `names` ("library:symbol"): those given, else those of libraries.

    Raises `LampworkError` for a missing one.
    """
    table = (ctypes.c_void_p * max(len(names), 1))()
    for i, name in enumerate(names):
        table[i] = addresses[name] if name in addresses else _address(name)
    return table


def _address(name: str) -> int:
    known = _addresses.get(name)
    if known is None:
        library, _, symbol = name.partition(":")
        try:
            function = getattr(_library(library), symbol)
        except AttributeError as error:
            raise LampworkError(f"{library} has no symbol {symbol}, which the compiled code needs") from error
        known = _addresses[name] = ctypes.cast(function, ctypes.c_void_p).value or 0
    return known


def _library(name: str) -> Any:
    known = _libraries.get(name)
    if known is None:
        if name in ("m", "c"):
            # The process has loaded libc and, with Python, libm; looking in all of it finds both.
            known = ctypes.CDLL(None) if name == "c" else ctypes.CDLL("libm.so.6")
        elif name == "python":
            known = ctypes.pythonapi
        else:
            # A look-up in libtorch_cpu goes on in the libraries it was linked to: the OpenMP runtime that torch uses.
            known = ctypes.CDLL(_loaded_path("libtorch_cpu.so"))
        _libraries[name] = known
    return known


def _loaded_path(file_name: str) -> str:
    """Where the library `file_name` of this process was loaded from."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            path = line[line.find("/") :].rstrip() if "/" in line else ""
            if path.rpartition("/")[2] == file_name:
                return path
    raise LampworkError(f"{file_name} is not loaded in this process")
