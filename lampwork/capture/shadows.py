"""`Shadows`: containers from outside, read and written in part.

A dict, list, set, closure or object from outside is a private copy (`capture/shadow.py`). What the program reads of it
is loaded then, and guarded no further than it was looked at: one key, that a key is missing, the length, or everything
("settled": from there on the copy is an ordinary container). Writes change the copy; `capture/effects.py` hands them
to the caller's object.
"""

from __future__ import annotations

import collections
import types
from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.guards import GuardList, Sources
from lampwork.capture.plain import has_identity_hash, is_plain
from lampwork.capture.shadow import (
    MISSING,
    Break,
    CellShadow,
    DictShadow,
    IdentityNumber,
    ListShadow,
    Origin,
    Pending,
    SetShadow,
    SlotShadow,
)
from lampwork.ir.source import Source


class Shadows:
    """Tables of what was loaded, and what the program does with containers among it."""

    def __init__(self, guards: GuardList, sources: Sources) -> None:
        self.guards = guards
        self.sources = sources
        self.by_raw: dict[int, Origin] = {}
        self.by_value: dict[int, Origin] = {}
        self.dicts: dict[int, DictShadow] = {}
        self.lists: dict[int, ListShadow] = {}
        self.sets: dict[int, SetShadow] = {}
        self.instances: dict[int, DictShadow] = {}
        #: Containers whose contents are still partly raw, by id of the copy.
        self.unsettled: dict[int, DictShadow | ListShadow | SetShadow] = {}
        self.slots: dict[int, SlotShadow] = {}
        self.cells: dict[int, CellShadow] = {}
        self._class_sources: dict[int, Source | None] = {}

    def load(self, raw: Any, source: Source) -> Any:
        """What the program holds for an object from outside: the loader's."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------------------------------
    # Instance dicts and slots

    def instance_dict(self, value: Any) -> DictShadow | None:
        """The shadow of the `__dict__` of an object from outside; None for objects of the program's own making."""
        shadow = self.instances.get(id(value))
        if shadow is not None:
            return shadow
        origin = self.by_value.get(id(value))
        if origin is None:
            return None
        raw_dict = getattr_dict(origin.raw)
        if raw_dict is None:
            return None
        source = self.sources.instance_dict(origin.source)
        shared = self.by_raw.get(id(raw_dict))
        if shared is not None:  # two objects over one dict, or the dict itself was met before
            self.guards.same_object(source, shared.source)
            shadow = self.instances[id(value)] = self.dicts[id(shared.value)]
            return shadow
        shadow = DictShadow(dict(raw_dict), raw_dict, source, owner=value)
        self.instances[id(value)] = shadow
        self.dicts[id(shadow.copy)] = self.unsettled[id(shadow.copy)] = shadow
        self.by_value[id(shadow.copy)] = Origin(shadow.copy, raw_dict, source)
        self.by_raw[id(raw_dict)] = self.by_value[id(shadow.copy)]
        return shadow

    def slot_shadow(self, value: Any) -> SlotShadow | None:
        """Slots of an object from outside; None for objects of the program's own making."""
        shadow = self.slots.get(id(value))
        if shadow is None and id(value) in self.by_value:
            shadow = self.slots[id(value)] = SlotShadow(value)
        return shadow

    def class_source(self, cls: type, of: Source | None = None) -> Source | None:
        """The source that class attributes of `cls` are read from; None for classes made by the program.

        A class without an importable name is reached through an instance of it (`of`).
        """
        known = self._class_sources.get(id(cls), MISSING)
        if known is not MISSING and (known is not None or of is None):
            return known  # type: ignore[return-value]
        reference = self.guards.reference(cls)
        source: Source | None
        if reference.module.startswith("lampwork.capture."):  # stands for a class of the interpreter; never changes
            source = None
        elif reference.portable:
            source = self.sources.named(reference.module, reference.qualname)
        else:
            origin = self.by_value.get(id(cls))
            source = origin.source if origin is not None else None
            if source is None and of is not None:
                source = self.sources.type_of(of)
        self._class_sources[id(cls)] = source
        return source

    # ------------------------------------------------------------------------------------------------------------------
    # Dicts

    def key_part(self, shadow: DictShadow, key: Any) -> Any:
        """What an `Item` source holds for `key`, which is in the dict: plain data, or the source of an object."""
        if is_plain(key):
            return key
        if type(key) is tuple:  # `table[type(p), type(q)]`: by its place in the dict, with what it holds
            for index, each in enumerate(shadow.base):
                if each == key:
                    source = self.sources.key_at(shadow.source, index)
                    self._load_key(each, source)
                    return source
        origin = self.by_value.get(id(key))
        if origin is not None:
            return origin.source
        if isinstance(key, (type, types.FunctionType, types.ModuleType)):
            ref = self.guards.reference(key)
            if ref.portable:
                return self.sources.named(ref.module, ref.qualname)
        raise Break("dict-key", f"a dict from outside is looked up with a key of type {type(key).__name__}")

    def dict_read(self, shadow: DictShadow, key: Any) -> Any:
        """The value at `key` of a shadowed dict, loaded; MISSING if there is none. Guards what was seen."""
        copy = shadow.copy
        if not has_identity_hash(key):
            raise Break("dict-key", f"a dict from outside is looked up with a key of type {type(key).__name__}, "
                        "whose hash is computed by Python code")  # fmt: skip
        value = dict.get(copy, key, MISSING)
        if value is MISSING:
            if key not in shadow.base and not shadow.whole and key not in shadow.absent:
                shadow.absent.add(key)
                self._guard_absent(shadow, key)
            return MISSING
        if key in shadow.pending:
            shadow.pending.discard(key)
            value = self.load(value, self.sources.item(shadow.source, self.key_part(shadow, key)))
            dict.__setitem__(copy, key, value)
        return value

    def _guard_absent(self, shadow: DictShadow, key: Any) -> None:
        if not is_plain(key):  # a test holds constants only: all keys are guarded instead
            self.dict_keys(shadow)
        elif isinstance(shadow.owner, torch.nn.Module) and isinstance(key, str):
            self.guards.absent_from_module(self.by_value[id(shadow.owner)].source, key)
        else:
            self.guards.has_key(shadow.source, key, False)

    def dict_has(self, shadow: DictShadow, key: Any) -> bool:
        """`key in dict`, guarded without looking at the value."""
        if not has_identity_hash(key):
            raise Break("dict-key", f"a dict from outside is looked up with a key of type {type(key).__name__}")
        present = dict.__contains__(shadow.copy, key)
        if shadow.whole or (key in shadow.base) != present or (present and key not in shadow.pending):
            return present
        if not present:
            if key not in shadow.absent:
                shadow.absent.add(key)
                self._guard_absent(shadow, key)
            return False
        if is_plain(key):
            self.guards.has_key(shadow.source, key, True)
        else:
            self.dict_keys(shadow)
        return True

    def dict_write(self, shadow: DictShadow, key: Any, value: Any) -> None:
        if not has_identity_hash(key):
            raise Break("dict-key", f"a dict from outside is written with a key of type {type(key).__name__}")
        if _is_identity(key) or key in shadow.deleted:  # which puts a key at the end, wherever it was
            self.dict_keys(shadow)
        shadow.changed = True
        shadow.written.setdefault(key)
        _overwrite(shadow, key)
        base_setitem(shadow.copy)(shadow.copy, key, value)

    def dict_delete(self, shadow: DictShadow, key: Any) -> bool:
        """Removes `key`; False if it was not there."""
        if not self.dict_has(shadow, key):
            return False
        if key in shadow.written and not shadow.whole:
            self._guard_before(shadow, key)
        shadow.changed = True
        shadow.written.pop(key, None)
        if key in shadow.base:
            shadow.deleted.add(key)
        _overwrite(shadow, key)
        base_delitem(shadow.copy)(shadow.copy, key)
        return True

    def _guard_before(self, shadow: DictShadow, key: Any) -> None:
        """Guards whether a key was there that the program wrote, perhaps without looking."""
        if key not in shadow.base:
            if key not in shadow.absent:
                shadow.absent.add(key)
                self._guard_absent(shadow, key)
        elif key in shadow.unseen:
            if is_plain(key):
                self.guards.has_key(shadow.source, key, True)
            else:
                self.dict_keys(shadow)

    def dict_keys(self, shadow: DictShadow) -> None:
        """Guards the keys and their order: from here on membership, length and iteration need no more guards."""
        if shadow.whole:
            return
        shadow.whole = True
        keys = tuple(shadow.base)
        if all(map(is_plain, keys)):
            self.guards.keys_are(shadow.source, keys)
            return
        self.guards.length_is(shadow.source, len(keys))
        for index, key in enumerate(keys):
            self._load_key(key, self.sources.key_at(shadow.source, index))

    def _load_key(self, key: Any, source: Source) -> None:
        """Guards that the key at `source` is `key`. Raises `Break` where the program holds something else for it."""
        loaded = self.load(key, source)
        same = loaded is key
        if type(key) is type(loaded) is tuple:
            same = all(each is other or (is_plain(each) and each == other) for each, other in zip(loaded, key))
        if not same:
            raise Break("dict-key", f"a dict from outside is read whole, with a key of type {type(key).__name__}")

    def dict_settle(self, shadow: DictShadow) -> dict:
        """All keys guarded and all values loaded: the copy is an ordinary dict from here on."""
        self.dict_keys(shadow)
        if shadow.pending:
            for key in [key for key in dict.__iter__(shadow.copy) if key in shadow.pending]:
                self.dict_read(shadow, key)
        self.unsettled.pop(id(shadow.copy), None)
        return shadow.copy

    # ------------------------------------------------------------------------------------------------------------------
    # Lists, sets

    def list_settle(self, shadow: ListShadow) -> Any:
        """Length guarded and all elements loaded: the copy is an ordinary list or deque from here on."""
        if shadow.state != "settled":
            shadow.state = "settled"
            self.unsettled.pop(id(shadow.copy), None)
            self.guards.length_is(shadow.source, len(shadow.base))
            base = shadow.base_class
            for position, element in enumerate(base.__iter__(shadow.copy)):
                if type(element) is Pending:
                    loaded = self.load(element.raw, self.sources.item(shadow.source, element.index))
                    base.__setitem__(shadow.copy, position, loaded)
        return shadow.copy

    def list_read(self, shadow: ListShadow, index: int) -> Any:
        """`list[index]` for an int; only that element is guarded where that suffices. May raise IndexError."""
        if shadow.state != "raw" or not 0 <= index < len(shadow.base):
            return shadow.base_class.__getitem__(self.list_settle(shadow), index)
        element = shadow.base_class.__getitem__(shadow.copy, index)
        if type(element) is Pending:
            element = self.load(element.raw, self.sources.item(shadow.source, index))
            shadow.base_class.__setitem__(shadow.copy, index, element)
        return element

    def list_append(self, shadow: ListShadow, values: Any) -> None:
        """Appends without looking at what is there."""
        if shadow.state == "raw":
            shadow.state = "appended"
        shadow.changed = True
        shadow.copy.extend(values)

    def set_settle(self, shadow: SetShadow) -> set:
        if not shadow.settled:
            shadow.settled = True
            self.unsettled.pop(id(shadow.copy), None)
            elements = tuple(map(_torch.named_operator, shadow.base))
            if not all(map(is_plain, elements)):
                raise Break("opaque-value", "a set of objects from outside is looked at")
            self.guards.keys_are(shadow.source, elements, ordered=False)
        return shadow.copy

    def settle(self, value: Any) -> Any:
        """Loads whatever is still raw in `value` itself, if it is a container from outside; returns it."""
        shadow = self.unsettled.get(id(value))
        if shadow is not None:
            if type(shadow) is DictShadow:
                self.dict_settle(shadow)
            elif type(shadow) is ListShadow:
                self.list_settle(shadow)
            else:
                self.set_settle(shadow)  # type: ignore[arg-type]
        return value

    # ------------------------------------------------------------------------------------------------------------------
    # Cells

    def register_cells(self, function: Any) -> None:
        """The closure of a function from outside: from here on its cells are shadowed."""
        origin = self.by_value.get(id(function))
        if origin is None or not function.__closure__:
            return
        for index, cell in enumerate(function.__closure__):
            source = self.sources.item(self.sources.attribute(origin.source, "__closure__"), index)
            known = self.cells.get(id(cell))
            if known is None:
                contents = self.sources.cell(origin.source, index)
                self.cells[id(cell)] = CellShadow(cell, source, contents, origin.source, index)
            elif known.source is not source:
                self.guards.same_object(source, known.source)

    def cell_read(self, shadow: CellShadow) -> Any:
        """The contents, loaded; MISSING if the cell is empty."""
        if not shadow.loaded:
            shadow.loaded = True
            try:
                raw = shadow.cell.cell_contents
            except ValueError:
                raise Break("empty-cell", "a closure variable from outside is read before it has a value") from None
            shadow.value = shadow.initial = self.load(raw, shadow.contents)
        return shadow.value

    def cell_write(self, shadow: CellShadow, value: Any) -> None:
        shadow.loaded = True
        shadow.written = True
        shadow.value = value


def getattr_dict(raw: Any) -> dict | None:
    """The real `__dict__` of an object, past any `__getattribute__` or `__dict__` property of its class."""
    try:
        found = object.__getattribute__(raw, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


def base_setitem(container: dict) -> Any:
    return collections.OrderedDict.__setitem__ if isinstance(container, collections.OrderedDict) else dict.__setitem__


def base_delitem(container: dict) -> Any:
    return collections.OrderedDict.__delitem__ if isinstance(container, collections.OrderedDict) else dict.__delitem__


def _overwrite(shadow: DictShadow, key: Any) -> None:
    """What is at `key` goes: where it was not looked at, a write of the same is a write nonetheless."""
    if key in shadow.pending:
        shadow.pending.discard(key)
        shadow.unseen.add(key)


def _is_identity(key: Any) -> bool:
    """Whether a key is made of what `id()` gave, so that nobody knows if the dict has it."""
    return any(map(_is_identity, key)) if type(key) is tuple else type(key) is IdentityNumber
