"""Words of memory: where CPython 3.11 to 3.14 keep what guards look at, and the native loop that compares them.

On an interpreter, machine or PyTorch whose memory does not look as this file expects, nothing is compared:
`supported()` tests it on objects made for the purpose.
"""

from __future__ import annotations

import _abc
import ctypes
import functools
import os
import platform
import struct
import sys
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from lampwork import _torch
from lampwork.runtime.guards.dict_versions import has_versions, is_told_of, version_address

#: `int64 compare(table)`: 0 when every word is as the table says. The table holds records of
#: `count, address, word * count`, ended by a count of 0. LLVM's code for the loop in
#: tests/unit/runtime/guards/test_version_snapshots.py.
_MACHINE_CODE = {
    "x86_64": bytes.fromhex(
        "488b074885c07436488b4f084883c71031d2662e0f1f8400000000000f1f4000488b34d7483b34d1750e48ffc24839c272ee"
        "488d3cc7ebc8b801000000c331c0c3"
    ),
    "aarch64": bytes.fromhex(
        "e80300aa20008052090140f9c90100b40b0540f9ea031faa084100910c796af86d796af89f010deb010100544a0500915f0109eb"
        "43ffff54080d098b090140f989feffb5e0031faac0035fd6"
    ),
}

# Where CPython 3.11 to 3.14 keep things, in bytes from an object's address (checked by `supported`).
TYPE = 8
DICT_USED = 16
DICT_KEYS = 32
DICT_VALUES = 40
#: Where the first value is in the array of values of a dict that shares its keys with others (a split table).
VALUES_FIRST = 8 if sys.version_info >= (3, 13) else 0
KEYS_SHAPE = 8
KEYS_ENTRIES = 24
KEYS_INDICES = 32
LIST_ITEMS = 24
LIST_SIZE = 16
CELL_CONTENTS = 16
REFERENT = 16
TYPE_VERSION = 384
MANAGED_DICT = -24


class Unstable(Exception):
    """The value's answer cannot be read off words of memory."""


@functools.cache
def registrations() -> int:
    """The address of the number of classes that were registered with abstract ones so far. Raises `Unstable` where it
    is not where CPython has it: the second word of the state of the module `_abc`."""
    state = ctypes.pythonapi.PyModule_GetState
    state.restype, state.argtypes = ctypes.c_void_p, [ctypes.py_object]
    address = state(_abc)
    if not address or word(address + 8) != _abc.get_cache_token():
        raise Unstable("the count of registrations is not found")
    return address + 8


def address_of_compare() -> int:
    from lampwork.runtime.launch.native import ExecutableMemory

    memory = ExecutableMemory(_MACHINE_CODE[platform.machine()])
    _kept.append(memory)
    return memory.address


_kept: list[object] = []


@functools.cache
def compare() -> Callable[[int], int]:
    """The native comparison. Called with the interpreter lock held: nothing else runs meanwhile."""
    return ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address_of_compare())


@functools.cache
def supported() -> bool:
    """Whether this interpreter, machine and PyTorch keep things where this file looks for them."""
    if sys.implementation.name != "cpython" or not (3, 11) <= sys.version_info[:2] <= (3, 14) or "t" in sys.abiflags:
        return False
    if platform.machine() not in _MACHINE_CODE or struct.calcsize("P") != 8 or sys.byteorder != "little":
        return False
    try:
        return has_versions() and _probe_interpreter() and _torch.tensor_layout() is not None
    except Exception:
        return False


def _probe_interpreter() -> bool:
    class Thing:
        __slots__ = ("slot", "__dict__")

        def method(self) -> None: ...

    class Plain:
        y: int

    values = {"a": 1}
    version = version_address(values)
    before = word(version)
    values["a"] = 2
    changed = word(version) != before and word(id(values) + DICT_USED) == 1
    plain: Any = Plain()
    attributes = plain.__dict__
    found = word(id(plain) + MANAGED_DICT) == id(attributes)
    words = _version_words(attributes)
    plain.x = 1
    found = found and _version_words(attributes) != words
    plain.__dict__ = {"x": 2}
    found = found and word(id(plain) + MANAGED_DICT) == id(plain.__dict__)
    getattr(plain, "x")  # noqa: B009
    tag = word(id(Plain) + TYPE_VERSION)
    Plain.y = 1
    getattr(plain, "x")  # noqa: B009
    classes = tag != 0 and word(id(Plain) + TYPE_VERSION) != tag
    items = [1, 2]
    slots = word(word(id(items) + LIST_ITEMS) + 8) == id(items[1]) and word(id(items) + LIST_SIZE) == 2
    contents = object()
    (cell,) = (lambda: contents).__closure__ or ()
    slots = slots and word(id(cell) + CELL_CONTENTS) == id(contents) and word(id(plain) + TYPE) == id(Plain)
    reference = weakref.ref(plain)
    slots = slots and word(id(reference) + REFERENT) == id(plain)
    thing: Any = Thing()
    thing.slot = contents
    slots = slots and word(id(thing) + member_offset(Thing.__dict__["slot"])) == id(contents)
    code = word(id(_probe_interpreter) + function_offset("__code__")) == id(_probe_interpreter.__code__)
    module = word(id(sys) + ModuleType.__dictoffset__) == id(sys.__dict__)
    return changed and found and classes and slots and code and module and _probe_entries()


def _version_words(attributes: dict) -> list[int]:
    """Words that change with what is stored in an object, by its instance dict."""
    values = word(id(attributes) + DICT_VALUES)
    if is_told_of(values):
        return [word(version_address(attributes))]
    return MEMORY[values >> 3 : (values + size_of_values(values)) >> 3].tolist()


def _probe_entries() -> bool:
    """Whether entries of dicts are where they are looked for: keys that are all text, others, and those shared."""

    class Sharing:
        def __init__(self) -> None:
            self.a, self.b = object(), object()

    sharing = Sharing()
    for container in ({"a": object(), "b": object()}, {1: object(), "b": object(), 3: object()}, sharing.__dict__):
        for number, (key, value) in enumerate(container.items()):
            _, index, place = place_of_key(container, key)
            values = word(id(container) + DICT_VALUES)
            if index != number or word(values + VALUES_FIRST + 8 * index if values else place + 8) != id(value):
                return False
    return True


#: The memory of this process by 8-byte words: `MEMORY[address // 8]`. User space ends at 2 ** 47.
MEMORY = memoryview((ctypes.c_uint64 * (1 << 44)).from_address(0)).cast("B").cast("Q")


def word(address: int) -> int:
    """The word at `address`, a multiple of 8 in live memory."""
    return MEMORY[address >> 3]


def member_offset(member: object) -> int:
    """The offset of a slot from its descriptor: `PyMemberDescrObject.d_member->offset`."""
    return word(word(id(member) + 40) + 16)


@functools.cache
def function_offset(name: str) -> int:
    """The offset of a function's `__code__`, `__defaults__` or `__kwdefaults__`."""

    def sample(a: object = object(), *, b: object = object()) -> None: ...

    for offset in range(16, 160, 8):
        if word(id(sample) + offset) == id(getattr(sample, name)):
            return offset
    raise Unstable(f"no slot for a function's {name}")


@functools.cache
def name_offset(name: str) -> int:
    """The offset of a class's `__name__` or `__qualname__`. From CPython 3.13 on its version does not change with them
    (those of classes in C never change)."""

    class Sample: ...

    Sample.__name__, Sample.__qualname__ = "a name", "a qualified name"
    size: int = vars(type)["__basicsize__"].__get__(type)  # of the objects that classes are
    for offset in range(TYPE_VERSION, size, 8):
        if word(id(Sample) + offset) == id(getattr(Sample, name)):
            return offset
    raise Unstable(f"no slot for a class's {name}")


def entries_of(keys: int) -> tuple[int, int]:
    """Of a dict's keys: the address of the first entry's key, and the distance to the next. Values follow keys."""
    shape = word(keys + KEYS_SHAPE)
    first = keys + KEYS_INDICES + (1 << (shape >> 8 & 0xFF))
    return (
        (first + 8, 24) if shape >> 16 & 0xFF == 0 else (first, 16)
    )  # keys that are all text have no hash beside them


def size_of_values(values: int) -> int:
    """The bytes of the values that an object and its dict share, from CPython 3.13 on: a word of counts, the values,
    and a byte for the place of each in their order."""
    capacity = word(values) & 0xFF
    return VALUES_FIRST + 8 * capacity + (capacity + 7 & ~7)


#: Types whose equality runs no code of the program.
_PLAIN_KEYS = (str, int, bytes)


def place_of_key(container: dict, key: object) -> tuple[int, int, int]:
    """Of a key: the address of the dict's keys, its number among them, and the address of its slot."""
    keys = word(id(container) + DICT_KEYS)
    first, step = entries_of(keys)
    # `sys.modules` has thousands of keys: no loop in Python over them where the key itself is one.
    held = MEMORY[first >> 3 : (first >> 3) + (step >> 3) * word(keys + KEYS_ENTRIES) : step >> 3].tolist()
    try:
        index = held.index(id(key))
    except ValueError:
        kind = type(key)
        equal = (
            [each for each in dict.keys(container) if type(each) is kind and each == key] if kind in _PLAIN_KEYS else []
        )
        if not equal:
            raise Unstable("no such key where keys should be") from None
        index = held.index(id(equal[0]))
    return keys, index, first + step * index


def bytes_at(memory: int, address: int, size_bytes: int) -> bytes:
    """Bytes of this process, through its file; fewer where there is no memory."""
    try:
        return os.pread(memory, size_bytes, address)
    except OSError:
        return b""
