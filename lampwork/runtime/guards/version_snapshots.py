"""Stamps: proof, in one native loop, that nothing an entry's static guards read has changed since they last held.

A large model has thousands of guards on its modules, classes and parameters, which hardly ever change. When they have
been checked once, one by one, the words of memory that every one of their answers depends on are written down:

    a dict                its version tag (CPython 3.11 and 3.12 give each change of each dict a number of its own)
    an object             its type, and where its `__dict__` is
    a class               its version tag (changes with the class, its bases and what is in them)
    a function, cell,     the slots that were read; what they held is kept alive, so that the same address means the
    list or slot          same object
    a weak reference      the slot of what it refers to, which is not kept alive
    a tensor              its whole `TensorImpl` from storage to dispatch keys, `requires_grad`, and where its data is

Where a dict is written again and again, as an optimizer's groups are by a schedule of learning rates, the entries that
are looked at stand for it: the slots of key and value (see `avoid`).

While all these words are what they were, every static guard holds and every value found is the same object. Words
are compared parents first: an address is read only after the words that keep its owner alive were found unchanged, and
the interpreter lock is held all the while. When a word differs, the guards are checked one by one again.

What cannot be stamped (sets, process state, tensors of more than five dimensions, ...) is left to a compiled check
on every call. On an interpreter, machine or PyTorch whose memory does not look as this file expects, nothing is
stamped: `supported()` tests it on objects made for the purpose.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import struct
import sys
import weakref
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import Any

import torch

from lampwork import _torch
from lampwork.ir.guard import (
    ClassLookup,
    Distinct,
    Equals,
    FunctionIs,
    Guard,
    HasKey,
    IsObject,
    KeysAre,
    LengthIs,
    ModuleIsPlain,
    SameObject,
    StorageGroups,
    TensorIs,
    TypeIs,
)
from lampwork.ir.source import (
    Attribute,
    Cell,
    ClassAttribute,
    InstanceDict,
    Item,
    KeyAt,
    Named,
    PythonModule,
    Referent,
    Root,
    Source,
    TypeOf,
    is_source,
)
from lampwork.runtime.guards import interpreter as reading

#: `int64 compare(table)`: 0 when every word is as the table says. The table holds records of
#: `count, address, word * count`, ended by a count of 0. LLVM's code for the loop in tests/unit/runtime/test_stamps.py.
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

# Where CPython 3.11 and 3.12 keep things, in bytes from an object's address (checked by `supported`).
_TYPE = 8
_DICT_USED = 16
_DICT_VERSION = 24
_DICT_KEYS = 32
_DICT_VALUES = 40
_KEYS_SHAPE = 8
_KEYS_ENTRIES = 24
_KEYS_INDICES = 32
_LIST_ITEMS = 24
_LIST_SIZE = 16
_CELL_CONTENTS = 16
_REFERENT = 16
_TYPE_VERSION = 384
_MANAGED_DICT = -24


class Unstable(Exception):
    """The value's answer cannot be read off words of memory."""


def address_of_compare() -> int:
    from lampwork.runtime.launch.native import ExecutableMemory

    memory = ExecutableMemory(_MACHINE_CODE[platform.machine()])
    _kept.append(memory)
    return memory.address


_kept: list[Any] = []


@functools.cache
def compare() -> Callable[[int], int]:
    """The native comparison. Called with the interpreter lock held: nothing else runs meanwhile."""
    return ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address_of_compare())


@functools.cache
def supported() -> bool:
    """Whether this interpreter, machine and PyTorch keep things where this file looks for them."""
    if sys.implementation.name != "cpython" or sys.version_info[:2] not in ((3, 11), (3, 12)):
        return False
    if platform.machine() not in _MACHINE_CODE or struct.calcsize("P") != 8 or sys.byteorder != "little":
        return False
    try:
        return _probe_interpreter() and _torch.tensor_layout() is not None
    except Exception:
        return False


def _probe_interpreter() -> bool:
    class Thing:
        __slots__ = ("slot", "__dict__")

        def method(self) -> None: ...

    class Plain:
        pass

    values = {"a": 1}
    before = word(id(values) + _DICT_VERSION)
    values["a"] = 2
    changed = word(id(values) + _DICT_VERSION) != before and word(id(values) + _DICT_USED) == 1
    plain = Plain()
    attributes = plain.__dict__
    found = word(id(plain) + _MANAGED_DICT) == id(attributes)
    before = word(id(attributes) + _DICT_VERSION)
    plain.x = 1  # type: ignore[attr-defined]
    found = found and word(id(attributes) + _DICT_VERSION) != before
    plain.__dict__ = {"x": 2}
    found = found and word(id(plain) + _MANAGED_DICT) == id(plain.__dict__)
    getattr(plain, "x")  # noqa: B009
    tag = word(id(Plain) + _TYPE_VERSION)
    Plain.y = 1  # type: ignore[attr-defined]
    getattr(plain, "x")  # noqa: B009
    classes = tag != 0 and word(id(Plain) + _TYPE_VERSION) != tag
    items = [1, 2]
    slots = word(word(id(items) + _LIST_ITEMS) + 8) == id(items[1]) and word(id(items) + _LIST_SIZE) == 2
    contents = object()
    cell = (lambda: contents).__closure__[0]  # type: ignore[index]
    slots = slots and word(id(cell) + _CELL_CONTENTS) == id(contents) and word(id(plain) + _TYPE) == id(Plain)
    reference = weakref.ref(plain)
    slots = slots and word(id(reference) + _REFERENT) == id(plain)
    thing = Thing()
    thing.slot = contents  # type: ignore[attr-defined]
    slots = slots and word(id(thing) + _member_offset(Thing.__dict__["slot"])) == id(contents)
    code = word(id(_probe_interpreter) + _function_offset("__code__")) == id(_probe_interpreter.__code__)
    module = word(id(sys) + ModuleType.__dictoffset__) == id(sys.__dict__)
    return changed and found and classes and slots and code and module and _probe_entries()


def _probe_entries() -> bool:
    """Whether entries of dicts are where they are looked for: keys that are all text, others, and those shared."""

    class Sharing:
        def __init__(self) -> None:
            self.a, self.b = object(), object()

    sharing = Sharing()
    for container in ({"a": object(), "b": object()}, {1: object(), "b": object(), 3: object()}, sharing.__dict__):
        for number, (key, value) in enumerate(container.items()):
            _, index, place = Stamps._place(container, key)
            values = word(id(container) + _DICT_VALUES)
            if index != number or word(values + 8 * index if values else place + 8) != id(value):
                return False
    return True


#: The memory of this process by 8-byte words: `_memory[address // 8]`. User space ends at 2 ** 47.
_memory = memoryview((ctypes.c_uint64 * (1 << 44)).from_address(0)).cast("B").cast("Q")


def word(address: int) -> int:
    """The word at `address`, a multiple of 8 in live memory."""
    return _memory[address >> 3]


def _member_offset(member: Any) -> int:
    """The offset of a slot from its descriptor: `PyMemberDescrObject.d_member->offset`."""
    return word(word(id(member) + 40) + 16)


@functools.cache
def _function_offset(name: str) -> int:
    """The offset of a function's `__code__`, `__defaults__` or `__kwdefaults__`."""

    def sample(a: object = object(), *, b: object = object()) -> None: ...

    for offset in range(16, 160, 8):
        if word(id(sample) + offset) == id(getattr(sample, name)):
            return offset
    raise Unstable(f"no slot for a function's {name}")


def _entries(keys: int) -> tuple[int, int]:
    """Of a dict's keys: the address of the first entry's key, and the distance to the next. Values are behind keys."""
    shape = word(keys + _KEYS_SHAPE)
    first = keys + _KEYS_INDICES + (1 << (shape >> 8 & 0xFF))
    return (
        (first + 8, 24) if shape >> 16 & 0xFF == 0 else (first, 16)
    )  # keys that are all text have no hash beside them


def _equal(held: Any, key: Any) -> bool:
    return type(held) is type(key) and type(key) in (str, int, bytes) and held == key


#: Dicts whose order is that of their entries.
_KEEP_ORDER = (dict, defaultdict)
_PLAIN = (bool, int, float, str, type(None))


def _bytes_at(memory: int, address: int, size_bytes: int) -> bytes:
    """Bytes of this process, through its file; fewer where there is no memory."""
    try:
        return os.pread(memory, size_bytes, address)
    except OSError:
        return b""


#: What `differing` names where a dict's entries have moved, which says nothing of any one of them.
_OTHER_PLACE = 0


class Stamps:
    """Collects the words that `guards` and `sources` of one call depend on.

    After `add_guard` and `add_read`: `table` is for `compare`; `values` has the value of each stable source by id;
    `left` the guards that must be checked on every call.

    `avoid`: what changes too often to be stamped, by id, as `differing` names it: sources and guards, which become
    unstable; dicts, of which entries are stamped then; classes.
    """

    def __init__(self, function: Any, avoid: Collection[int] = ()) -> None:
        self.function = function
        self._avoid = avoid
        #: What the words that are written down now speak of: the id of a source, guard, dict or class.
        self._about = 0
        self._records: list[tuple[int, int, int]] = []
        self._cheap: set[int] = set()
        self.values: dict[int, Any] = {}
        self._sources: list[Source] = []
        self.left: list[Guard] = []
        self.keep: list[Any] = []
        self._words = array("Q")
        self._seen: set[tuple[int, int]] = set()
        self._unstable: dict[int, Source] = {}
        #: Read-only views of classes' own dicts, by id: the class's version covers them.
        self._class_dicts: dict[int, Any] = {}

    def add_guard(self, guard: Guard) -> None:
        """Stamp what `guard` (which holds now) depends on; or put it in `left`."""
        outer, self._about = self._about, id(guard)
        try:
            if id(guard) in self._avoid:
                raise Unstable("it fails too often")
            self._guard(guard)
        except (Unstable, *reading.READ_ERRORS):
            self.left.append(guard)
        finally:
            self._about = outer

    def add_read(self, source: Source) -> bool:
        """Stamp the path of `source`, and where the data of a tensor is; false where it must be read on every call."""
        outer, self._about = self._about, id(source)
        try:
            if isinstance(source, Referent):
                return False
            value = self.value(source)
            if issubclass(type(value), torch.Tensor):
                self.tensor(value)
            return True
        except (Unstable, *reading.READ_ERRORS):
            return False
        finally:
            self._about = outer

    def table(self) -> array:
        """What `compare` takes; valid as long as this object is kept."""
        return self._words + array("Q", [0])

    def known(self) -> Iterator[tuple[Source, Any]]:
        """Each stable source with its value; not what weak references refer to, which nothing here may keep alive."""
        for source in self._sources:
            if not isinstance(source, Referent):
                yield source, self.values[id(source)]

    def let_go(self) -> None:
        """When all is stamped: what weak references refer to is kept alive no longer. Once it is gone, they change."""
        for source in self._sources:
            if isinstance(source, Referent):
                del self.values[id(source)]

    def differing(self) -> dict[int, int]:
        """What changed since: the ids of sources, guards, dicts and classes whose words are others now; and how much
        that says: 2 where looking at it on every call costs next to nothing (dicts, and plain numbers), else 1.

        Memory may be gone by now, so it is read through the kernel. Where that cannot be, only what changed first is
        found: what lies in front of it is as it was, and so its words can be read.
        """
        found: dict[int, int] = {}
        try:
            memory = os.open("/proc/self/mem", os.O_RDONLY)
        except OSError:
            memory = -1
        try:
            for index, count, about in self._records:
                address, expected = self._words[index + 1], self._words[index + 2 : index + 2 + count]
                if memory < 0:
                    same = _memory[address >> 3 : (address >> 3) + count] == memoryview(expected)
                else:
                    same = _bytes_at(memory, address, 8 * count) == expected.tobytes()
                if not same:
                    found[about] = 2 if about in self._cheap or type(self.values.get(about, self)) in _PLAIN else 1
                    if memory < 0:
                        break
        finally:
            if memory >= 0:
                os.close(memory)
        return found

    # Words -----------------------------------------------------------------------------------------------------------

    def _range(self, address: int, size_bytes: int, about: int | None = None) -> None:
        if (address, size_bytes) not in self._seen:
            self._seen.add((address, size_bytes))
            start = address >> 3
            self._records.append((len(self._words), size_bytes >> 3, self._about if about is None else about))
            count = size_bytes >> 3
            self._words.append(count)
            self._words.append(address)
            if count == 1:
                self._words.append(_memory[start])
            else:
                self._words.extend(_memory[start : start + count])

    def _slot(self, address: int, value: Any) -> None:
        """The slot at `address` holds the object `value`, which is kept alive so that its address stays its own."""
        if word(address) != id(value):
            raise Unstable("the slot holds something else")
        self._range(address, 8)
        self.keep.append(value)

    def _dict(self, value: dict) -> None:
        self._cheap.add(id(value))
        self._range(id(value) + _DICT_VERSION, 8, id(value))

    def _entry(self, container: dict, key: Any) -> None:
        """What makes `container[key]` the same object next time."""
        if id(container) not in self._avoid:
            self._dict(container)
            return
        keys, index, place = self._place(container, key)
        # The place alone: other keys may come and go. (No two keys of a dict are equal, so what has this one has it.)
        self._range(id(container) + _DICT_KEYS, 16, _OTHER_PLACE)
        self._range(keys + _KEYS_SHAPE, 8, _OTHER_PLACE)
        if word(id(container) + _DICT_VALUES):
            self._range(place, 8)
            self._range(word(id(container) + _DICT_VALUES) + 8 * index, 8)
        else:
            self._range(place, 16)
        self.keep += (container, key, dict.__getitem__(container, key))

    def _keys(self, container: dict) -> None:
        """What makes the keys of a dict the same, in the same order."""
        if id(container) not in self._avoid:
            self._dict(container)
            return
        if word(id(container) + _DICT_VALUES):
            raise Unstable("keys that objects share")
        keys = word(id(container) + _DICT_KEYS)
        size = dict.__len__(container)
        if word(keys + _KEYS_ENTRIES) != size:
            raise Unstable("keys with gaps between them")
        self._range(id(container) + _DICT_USED, 8)
        self._range(id(container) + _DICT_KEYS, 16, _OTHER_PLACE)
        self._range(keys + _KEYS_SHAPE, 8, _OTHER_PLACE)
        self._range(keys + _KEYS_ENTRIES, 8)
        first, step = _entries(keys)
        for index, key in enumerate(dict.keys(container)):
            self._slot(first + step * index, key)
        self.keep.append(container)

    @staticmethod
    def _place(container: dict, key: Any) -> tuple[int, int, int]:
        """Of a key: the address of the dict's keys, its number among them, and the address of its slot."""
        keys = word(id(container) + _DICT_KEYS)
        first, step = _entries(keys)
        held = next((each for each in dict.keys(container) if each is key or _equal(each, key)), None)
        for index in range(word(keys + _KEYS_ENTRIES)):
            if word(first + step * index) == id(held):
                return keys, index, first + step * index
        raise Unstable("no such key where keys should be")

    def _class(self, cls: type) -> None:
        if id(cls) in self._avoid:
            raise Unstable("the class changes too often")
        cls.__doc__  # noqa: B018  a look-up gives the class a version if it has none
        if word(id(cls) + _TYPE_VERSION) & 0xFFFFFFFF == 0:
            raise Unstable("the class has no version")
        self._range(id(cls) + _TYPE_VERSION, 8, id(cls))
        self.keep.append(cls)

    # Paths -----------------------------------------------------------------------------------------------------------

    def value(self, source: Source) -> Any:
        """The value at `source`, with every word stamped that makes it the same object next time."""
        if id(source) in self.values:
            return self.values[id(source)]
        if id(source) in self._unstable or id(source) in self._avoid:
            raise Unstable
        outer, self._about = self._about, id(source)
        try:
            found = self._value(source)
        except BaseException:
            self._unstable[id(source)] = source
            raise
        finally:
            self._about = outer
        self.values[id(source)] = found
        self._sources.append(source)
        return found

    def _value(self, source: Source) -> Any:
        match source:
            case Root():
                return self.function
            case PythonModule(name):
                self._entry(sys.modules, name)
                return sys.modules[name]
            case Named(module, qualname):
                found = reading.find(module, qualname)
                self.keep.append(found)
                return found
            case InstanceDict(base):
                return self._instance_dict(self.value(base))
            case Item(base, key):
                return self._item(self.value(base), self.value(key) if is_source(key) else key)
            case KeyAt(base, index):
                container = self.value(base)
                if type(container) not in _KEEP_ORDER:
                    raise Unstable("keys in an order that no version covers")
                self._keys(container)
                return reading.key_at(container, index)
            case Cell(base, index):
                cell = reading.attribute(self.value(base), "__closure__")[index]
                contents = cell.cell_contents
                self._slot(id(cell) + _CELL_CONTENTS, contents)
                return contents
            case Attribute(base, name):
                return self._attribute(self.value(base), name)
            case TypeOf(base):
                return self._type(self.value(base))
            case Referent(base):
                return self._referent(self.value(base))
            case ClassAttribute(base, name):
                cls = self.value(base)
                self._class(cls)
                return reading.class_attribute(cls, name)
        raise Unstable(f"no stamp for {type(source).__name__}")

    def _referent(self, reference: Any) -> Any:
        found = reference() if type(reference) is weakref.ref else None
        if found is None or word(id(reference) + _REFERENT) != id(found):
            raise Unstable("no weak reference")
        self._range(id(reference) + _REFERENT, 8)  # it is cleared when the object goes, and never refers to another
        return found

    def _type(self, value: Any) -> type:
        kind = type(value)
        self._slot(id(value) + _TYPE, kind)
        return kind

    def _instance_dict(self, value: Any) -> dict:
        attributes = reading.instance_dict(value)
        kind = type(value)
        if issubclass(kind, type):
            self._class(value)
            self._class_dicts[id(attributes)] = attributes
            return attributes
        if type(attributes) is not dict:
            raise Unstable("no plain instance dict")
        offset = kind.__dictoffset__
        address = id(value) + (offset if offset > 0 else _MANAGED_DICT)
        if word(address) != id(attributes):
            raise Unstable("the instance dict is somewhere else")
        self._range(address, 8)
        # Another dict at the same address has another version, so this one need not be kept alive.
        if id(attributes) not in self._avoid:
            self._dict(attributes)
        else:
            self.keep.append(attributes)
        return attributes

    def _item(self, container: Any, key: Any) -> Any:
        if isinstance(container, dict):
            found = reading.item(container, key)
            self._entry(container, key)
            return found
        if type(container) is tuple or id(container) in self._class_dicts:
            return container[key]
        if type(container) is list and type(key) is int:
            found = container[key]
            self._range(id(container) + _LIST_ITEMS, 8)
            self._range(id(container) + _LIST_SIZE, 8)
            index = key if key >= 0 else len(container) + key
            self._slot(word(id(container) + _LIST_ITEMS) + 8 * index, found)
            return found
        raise Unstable(f"items of a {type(container).__name__}")

    def _attribute(self, value: Any, name: str) -> Any:
        found = reading.attribute(value, name)
        if type(value) is FunctionType and name in ("__code__", "__defaults__", "__kwdefaults__"):
            address = id(value) + _function_offset(name)
            if found is None and word(address) == 0:
                self._range(address, 8)
            else:
                self._slot(address, found)
            return found
        for cls in type(value).__mro__:
            member = cls.__dict__.get(name)
            if member is not None:
                if type(member) is not MemberDescriptorType:
                    break
                self._type(value)
                self._slot(id(value) + _member_offset(member), found)
                return found
        raise Unstable(f"attribute {name}")

    # Tests -----------------------------------------------------------------------------------------------------------

    def _guard(self, guard: Guard) -> None:
        test = guard.test
        if isinstance(test, (Distinct, StorageGroups)):
            sources = (guard.source, *test.others) if isinstance(test, Distinct) else test.sources
            for source in sources:
                self.value(source)
            return
        value = self.value(guard.source)
        match test:
            case TypeIs():
                self._type(value)
            case Equals() | IsObject():
                pass  # the same object, and immutable where its value counts
            case FunctionIs():
                self._type(value)
                self._slot(id(value) + _function_offset("__code__"), value.__code__)
            case TensorIs():
                self._about = id(guard.source)
                self.tensor(value, test)
            case LengthIs():
                self._length(value)
            case KeysAre(_, ordered):
                if not isinstance(value, dict) or (ordered and type(value) not in _KEEP_ORDER):
                    raise Unstable("keys")
                self._keys(value)
            case HasKey():
                if id(value) not in self._class_dicts:
                    if not isinstance(value, dict):
                        raise Unstable("membership")
                    self._keys(value)
            case ClassLookup(name):
                self._class(value)
                found = reading.class_lookup(value, name)
                found = found.__func__ if type(found) in (staticmethod, classmethod) else found
                if type(found) is FunctionType:
                    self._slot(id(found) + _function_offset("__code__"), found.__code__)
            case SameObject(other):
                self.value(other)
            case ModuleIsPlain(_, empty):
                attributes = self._instance_dict(value)
                self._keys(attributes)
                for name in empty:
                    self._entry(attributes, name)
                    self._empty(attributes[name])
            case _:
                raise Unstable(type(test).__name__)

    def _length(self, value: Any) -> None:
        if isinstance(value, dict):
            self._range(id(value) + _DICT_USED, 8)
        elif type(value) is list:
            self._range(id(value) + _LIST_SIZE, 8)
        elif type(value) not in (tuple, str, bytes, frozenset, range):
            raise Unstable("length")

    def _empty(self, value: Any) -> None:
        if not isinstance(value, dict) or dict.__len__(value):
            raise Unstable("no empty dict")
        self._range(id(value) + _DICT_USED, 8)

    def tensor(self, value: torch.Tensor, test: TensorIs | None = None) -> None:
        """Stamp the tensor's metadata and the address of its data."""
        if test is not None and (None in test.shape or value._is_view()):
            raise Unstable("what a view requires depends on its base")
        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            raise Unstable("a subclass")
        if value.layout is not torch.strided or value.dim() > 5:
            raise Unstable("sizes kept elsewhere")
        layout = _torch.tensor_layout()
        assert layout is not None
        self._type(value)
        impl = value._cdata
        self._range(id(value) + layout.handle, 8)
        self._range(impl + layout.first, layout.last - layout.first)
        meta = word(impl + layout.autograd)
        if meta:
            address = meta + layout.requires_grad
            self._range(address - address % 8, 8)
            self._range(meta + layout.grad_fn, 8)
        if value.data_ptr():
            self._range(word(impl + layout.storage) + layout.data, 8)
        elif value.numel():
            raise Unstable("no memory")


def merged_ranges(places: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Begin and end of the memory at `places` (begin and size of each), sorted, apart from each other."""
    merged: list[list[int]] = []
    for start, end in sorted([(start, start + size) for start, size in places if size]):
        if merged and start <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([start, end])
    return merged


class Overlap:
    """Tells whether memory of a call's own tensors overlaps that of static tensors, whose places are stamped."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        merged = merged_ranges([(tensor.data_ptr(), reading.tensor_extent_bytes(tensor)) for tensor in tensors])
        self._starts = [start for start, _ in merged]
        self._ends = [end for _, end in merged]

    def apart(self, pointer: int, extent: int) -> bool:
        """No byte of `[pointer, pointer + extent)` is in a static tensor."""
        index = bisect_right(self._starts, pointer + extent - 1) - 1
        return extent == 0 or index < 0 or self._ends[index] <= pointer
