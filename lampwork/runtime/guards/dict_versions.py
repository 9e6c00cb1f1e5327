"""The version of a dict: a word of memory that changes with everything that is put in, replaced or taken out.

CPython 3.11 and 3.12 keep one in each dict (PEP 509). Later there is none that can be trusted (PEP 699), but a dict can
be watched (`PyDict_Watch`): a function in C is called before each change. Ours counts the changes of all watched dicts
in a table of 65,536 counters, where the address of a dict says which is its own. Dicts that share a counter share its
changes: an entry then looks at its guards once more than it had to. The end of a dict counts as a change, so one that
is made at the same address is another one.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
from collections.abc import Callable

#: Where CPython 3.11 and 3.12 keep it, in bytes from a dict's address.
_VERSION = 24
_COUNTERS = 1 << 16

#: `int changed(int event, PyObject *dict, PyObject *key, PyObject *new_value)`, where the counters' address follows
#: at its place: `counters[(uint64_t)dict >> 4 & 0xFFFF] += 1; return 0;`
_MACHINE_CODE = {
    "x86_64": (
        bytes.fromhex("4889f048c1e8040fb7c048b9000000000000000048ff04c131c0c3"),
        12,
    ),  # mov rax, rsi; shr rax, 4; movzx eax, ax; mov rcx, counters; inc qword [rcx + rax * 8]; xor eax, eax; ret
}


def version_address(value: dict) -> int:
    """The address of the word. It is valid, and says the truth, as long as the dict lives and after. Asked of dicts of
    which `is_told_of` is true."""
    if sys.version_info < (3, 13):
        return id(value) + _VERSION
    watcher, counters, watch = _watcher()
    watch(watcher, value)
    return counters + (id(value) >> 4 & (_COUNTERS - 1)) * 8


def is_told_of(values: int) -> bool:
    """Whether each change of a dict changes its version. `values`: the address of the values that it shares with its
    object, or 0: CPython 3.13 tells nobody of what is stored in those."""
    return not values or sys.version_info[:2] != (3, 13)


def has_versions() -> bool:
    """Whether this interpreter, on this machine, has versions of dicts. It may raise where it has none."""
    if sys.version_info < (3, 13):
        return True
    return platform.machine() in _MACHINE_CODE and bool(_watcher())


@functools.cache
def _watcher() -> tuple[int, int, Callable[[int, dict], int]]:
    """The number of our watcher, the address of its counters, and `PyDict_Watch`. Made once and for good: dicts tell
    of their end when the interpreter itself ends. Raises RuntimeError where no watcher is free (there are eight)."""
    from lampwork.runtime.launch.native import ExecutableMemory

    counters = (ctypes.c_uint64 * _COUNTERS)()
    code, at = _MACHINE_CODE[platform.machine()]
    address = ctypes.addressof(counters)
    memory = ExecutableMemory(code[:at] + address.to_bytes(8, "little") + code[at + 8 :])
    for each in (counters, memory):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
    add = ctypes.pythonapi.PyDict_AddWatcher
    add.restype, add.argtypes = ctypes.c_int, [ctypes.c_void_p]
    watch = ctypes.pythonapi.PyDict_Watch
    watch.restype, watch.argtypes = ctypes.c_int, [ctypes.c_int, ctypes.py_object]
    return add(memory.address), address, watch
