"""Version snapshots: proof, in one native loop, that nothing the static guards of an entry read has changed.

A large model has thousands of guards on its modules, classes and parameters, which hardly ever change. When they have
been checked once, one by one, the words of memory that every one of their answers depends on are written down:

    a dict                its version, which changes with all that is done to it (`dict_versions.py`)
    an object             its type, and where its `__dict__` is
    a class               its version tag (changes with the class, its bases and what is in them)
    a function, cell,     the slots that were read; what they held stays alive, or its end is told (`kept.py`), so that
    list or slot          the same address means the same object
    a weak reference      the slot of what it refers to, which is not kept alive
    a tensor              its whole `TensorImpl` from storage to dispatch keys, `requires_grad`, and where its data is

Where a dict is written again and again, as an optimizer's groups are by a schedule of learning rates, the entries that
are looked at stand for it: the slots of key and value (see `avoid`).

While all these words are what they were, every static guard holds and every value found is the same object. Words
are compared parents first: an address is read only after the words that keep its owner alive were found unchanged, and
the interpreter lock is held all the while. When a word differs, the guards are checked one by one again.

Of what there can be no snapshot (sets, process state, tensors of more than five dimensions, ...) is left to a compiled
check on every call. Which words a test or a step depends on, its rule says (`rules.py`); what lies where is in
`memory_words.py`.
"""

from __future__ import annotations

import os
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any

import torch

from lampwork import _torch
from lampwork.ir.guard import Guard, TensorIs
from lampwork.ir.source import Referent, Source
from lampwork.runtime.guards.dict_versions import is_told_of, version_address
from lampwork.runtime.guards.interpreter import READ_ERRORS, instance_dict
from lampwork.runtime.guards.kept import has_own_life
from lampwork.runtime.guards.memory_words import (
    DICT_KEYS,
    DICT_USED,
    DICT_VALUES,
    KEYS_ENTRIES,
    KEYS_SHAPE,
    MANAGED_DICT,
    MEMORY,
    TYPE,
    TYPE_VERSION,
    VALUES_FIRST,
    Unstable,
    bytes_at,
    entries_of,
    place_of_key,
    size_of_values,
    word,
)
from lampwork.runtime.guards.rules import rule_of, step_of

#: Dicts whose order is that of their entries.
KEEP_ORDER = (dict, defaultdict)
_PLAIN = (bool, int, float, str, type(None))

#: What `differing` names where a dict's entries have moved, which says nothing of any one of them.
_OTHER_PLACE = 0


class VersionSnapshots:
    """Collects the words that `guards` and `sources` of one call depend on.

    After `add_guard` and `add_read`: `table` is for `compare`; `values` has the value of each stable source by id;
    `left` the guards that must be checked on every call.

    `avoid`: what changes too often for a snapshot, by id, as `differing` names it: sources and guards, which become
    unstable; dicts, of which entries are taken then; classes.
    """

    def __init__(self, function: Any, avoid: Collection[int] = ()) -> None:
        self.function = function
        self._avoid = avoid
        #: What the words that are written down now speak of: the id of a source, guard, dict or class.
        self._about = 0
        self._records: list[tuple[int, int, int]] = []
        self._cheap: set[int] = set()
        #: Sources of plain numbers and texts, once all is taken.
        self._plain: set[int] = set()
        self.values: dict[int, Any] = {}
        self._sources: list[Source] = []
        self.left: list[Guard] = []
        self.keep: list[Any] = []
        self._table_words = array("Q")
        self._seen: set[tuple[int, int]] = set()
        self._unstable: dict[int, Source] = {}
        #: Read-only views of classes' own dicts, by id: the class's version covers them.
        self._class_dicts: dict[int, Any] = {}

    def add_guard(self, guard: Guard) -> None:
        """Takes the words that `guard` (which holds now) depends on; or puts it in `left`."""
        outer, self._about = self._about, id(guard)
        try:
            if id(guard) in self._avoid:
                raise Unstable("it fails too often")
            rule_of(guard.test).snapshot(self, guard.test, guard.source)
        except (Unstable, *READ_ERRORS):
            self.left.append(guard)
        finally:
            self._about = outer

    def add_read(self, source: Source) -> bool:
        """Takes the path of `source`, and where the data of a tensor is; false where it must be read on every call."""
        outer, self._about = self._about, id(source)
        try:
            if isinstance(source, Referent):
                return False
            value = self.value(source)
            if issubclass(type(value), torch.Tensor):
                self.tensor(value)
            return True
        except (Unstable, *READ_ERRORS):
            return False
        finally:
            self._about = outer

    def table(self) -> array:
        """What `compare` takes; valid as long as what `let_go` returns is kept."""
        return self._table_words + array("Q", [0])

    def known(self) -> Iterator[tuple[Source, Any]]:
        """Each stable source with its value; not what weak references refer to, which nothing here may keep alive."""
        for source in self._sources:
            if not isinstance(source, Referent):
                yield source, self.values[id(source)]

    def let_go(self) -> list[object]:
        """When all is taken: what must stay alive for the words to mean what they do, which is not kept here; and the
        program's objects on the way to it, whose end is that of the words."""
        self._plain = {about for about, value in self.values.items() if type(value) in _PLAIN}
        on_the_way = (self.values[id(each)] for each in self._sources if not isinstance(each, Referent))
        keep, self.keep = self.keep + [each for each in on_the_way if has_own_life(each)], []
        self.function, self.values, self._sources, self._class_dicts = None, {}, [], {}
        return keep

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
                address, expected = self._table_words[index + 1], self._table_words[index + 2 : index + 2 + count]
                if memory < 0:
                    same = MEMORY[address >> 3 : (address >> 3) + count] == memoryview(expected)
                else:
                    same = bytes_at(memory, address, 8 * count) == expected.tobytes()
                if not same:
                    found[about] = 2 if about in self._cheap or about in self._plain else 1
                    if memory < 0:
                        break
        finally:
            if memory >= 0:
                os.close(memory)
        return found

    # Words -----------------------------------------------------------------------------------------------------------

    def of_source(self, source: Source) -> None:
        """What is taken from here on speaks of the value at `source`, until the guard or source at hand is done."""
        self._about = id(source)

    def words(self, address: int, size_bytes: int, about: int | None = None) -> None:
        """The words at `address`. `about`: what they speak of, where that is not the guard or source at hand."""
        if (address, size_bytes) not in self._seen:
            self._seen.add((address, size_bytes))
            start = address >> 3
            self._records.append((len(self._table_words), size_bytes >> 3, self._about if about is None else about))
            count = size_bytes >> 3
            self._table_words.append(count)
            self._table_words.append(address)
            if count == 1:
                self._table_words.append(MEMORY[start])
            else:
                self._table_words.extend(MEMORY[start : start + count])

    def slot(self, address: int, value: object) -> None:
        """The slot at `address` holds the object `value`, which is kept alive so that its address stays its own."""
        if word(address) != id(value):
            raise Unstable("the slot holds something else")
        self.words(address, 8)
        self.keep.append(value)

    def dict_version(self, value: dict) -> None:
        """The version of a dict, which changes with everything in it."""
        self._cheap.add(id(value))
        values = word(id(value) + DICT_VALUES)
        if is_told_of(values):
            self.words(version_address(value), 8, id(value))
            return
        # All that the object keeps for the dict, in place of a version: the values, which are kept alive so that other
        # ones have other addresses, how many there are, and their order.
        self.words(id(value) + DICT_KEYS, 16, id(value))
        self.words(values, size_of_values(values), id(value))
        self.keep.extend(dict.values(value))

    def entry(self, container: dict, key: object) -> None:
        """What makes `container[key]` the same object next time."""
        if id(container) not in self._avoid:
            self.dict_version(container)
            return
        keys, index, place = place_of_key(container, key)
        # The place alone: other keys may come and go. (No two keys of a dict are equal, so what has this one has it.)
        self.words(id(container) + DICT_KEYS, 16, _OTHER_PLACE)
        self.words(keys + KEYS_SHAPE, 8, _OTHER_PLACE)
        if word(id(container) + DICT_VALUES):
            self.words(place, 8)
            self.words(word(id(container) + DICT_VALUES) + VALUES_FIRST + 8 * index, 8)
        else:
            self.words(place, 16)
        self.keep += (container, key, dict.__getitem__(container, key))

    def keys(self, container: dict) -> None:
        """What makes the keys of a dict the same, in the same order."""
        if id(container) not in self._avoid:
            self.dict_version(container)
            return
        if word(id(container) + DICT_VALUES):
            raise Unstable("keys that objects share")
        keys = word(id(container) + DICT_KEYS)
        size = dict.__len__(container)
        if word(keys + KEYS_ENTRIES) != size:
            raise Unstable("keys with gaps between them")
        self.words(id(container) + DICT_USED, 8)
        self.words(id(container) + DICT_KEYS, 16, _OTHER_PLACE)
        self.words(keys + KEYS_SHAPE, 8, _OTHER_PLACE)
        self.words(keys + KEYS_ENTRIES, 8)
        first, step = entries_of(keys)
        for index, key in enumerate(dict.keys(container)):
            self.slot(first + step * index, key)
        self.keep.append(container)

    def class_version(self, cls: type) -> None:
        """The version of a class, which changes with it, its bases and what is in them."""
        if id(cls) in self._avoid:
            raise Unstable("the class changes too often")
        cls.__doc__  # noqa: B018  a look-up gives the class a version if it has none
        if word(id(cls) + TYPE_VERSION) & 0xFFFFFFFF == 0:
            raise Unstable("the class has no version")
        self.words(id(cls) + TYPE_VERSION, 8, id(cls))
        self.keep.append(cls)

    # Paths -----------------------------------------------------------------------------------------------------------

    def value(self, source: Source) -> Any:
        """The value at `source`, with every word taken that makes it the same object next time."""
        if id(source) in self.values:
            return self.values[id(source)]
        if id(source) in self._unstable or id(source) in self._avoid:
            raise Unstable
        outer, self._about = self._about, id(source)
        try:
            found = step_of(source).snapshot(self, source)
        except BaseException:
            self._unstable[id(source)] = source
            raise
        finally:
            self._about = outer
        self.values[id(source)] = found
        self._sources.append(source)
        return found

    def type_of(self, value: object) -> type:
        """The type of `value`, which is taken."""
        kind = type(value)
        self.slot(id(value) + TYPE, kind)
        return kind

    def instance_dict(self, value: Any) -> dict:
        """`value.__dict__`, with what makes it the same dict with the same contents."""
        attributes = instance_dict(value)
        kind = type(value)
        if issubclass(kind, type):
            self.class_version(value)
            self._class_dicts[id(attributes)] = attributes
            return attributes
        if type(attributes) is not dict:
            raise Unstable("no plain instance dict")
        offset = kind.__dictoffset__
        address = id(value) + (offset if offset > 0 else MANAGED_DICT)
        if word(address) != id(attributes):
            raise Unstable("the instance dict is somewhere else")
        self.words(address, 8)
        # Another dict at the same address has another version, so this one need not be kept alive.
        if id(attributes) not in self._avoid:
            self.dict_version(attributes)
        else:
            self.keep.append(attributes)
        return attributes

    def is_class_dict(self, container: object) -> bool:
        """Whether it is the read-only view of a class's own dict whose version is taken: that covers what is in it."""
        return id(container) in self._class_dicts

    def tensor(self, value: torch.Tensor, test: TensorIs | None = None) -> None:
        """Takes the tensor's metadata and the address of its data."""
        if test is not None and (None in test.shape or value._is_view()):
            raise Unstable("what a view requires depends on its base")
        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            raise Unstable("a subclass")
        if value.layout is not torch.strided or value.dim() > 5:
            raise Unstable("sizes kept elsewhere")
        layout = _torch.tensor_layout()
        assert layout is not None
        self.type_of(value)
        impl = value._cdata
        self.words(id(value) + layout.handle, 8)
        self.words(impl + layout.first, layout.last - layout.first)
        meta = word(impl + layout.autograd)
        if meta:
            address = meta + layout.requires_grad
            self.words(address - address % 8, 8)
            self.words(meta + layout.grad_fn, 8)
        if value.data_ptr():
            self.words(word(impl + layout.storage) + layout.data, 8)
        elif value.numel():
            raise Unstable("no memory")
