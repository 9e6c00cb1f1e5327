"""`ContainerOverlays`: containers from outside, read and written in part.

A dict, list, set, closure or object from outside is a private copy (`capture/outside/overlay.py`). What the program
reads of it is loaded then, and guarded no further than it was looked at: one key, that a key is missing, the length, or
everything ("settled": from there on the copy is an ordinary container). Writes change the copy;
`capture/leave/effects.py` hands them to the caller's object.
"""

from __future__ import annotations

import collections
import enum
import types
from collections.abc import Callable
from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.outside.guards import GuardList, Sources
from lampwork.capture.outside.open_text import OpenText
from lampwork.capture.outside.overlay import (
    MISSING,
    Break,
    CellOverlay,
    DictOverlay,
    IdentityNumber,
    KeysOverlay,
    ListOverlay,
    Missing,
    Origin,
    Pending,
    SetOverlay,
    SlotOverlay,
)
from lampwork.capture.outside.plain import HEAP_TYPE, PLAIN_TYPES, has_identity_hash, is_plain
from lampwork.ir.reference import is_replacement
from lampwork.ir.source import Source

#: What the `enum` module keeps in members for itself; the second when it is first asked for.
_NOTES_OF_ENUM = frozenset({"_sort_order_", "_inverted_"})


class ContainerOverlays:
    """Tables of what was loaded, and what the program does with containers among it."""

    def __init__(self, guards: GuardList, sources: Sources) -> None:
        self.guards = guards
        self.sources = sources
        self.by_raw: dict[int, Origin] = {}
        self.by_value: dict[int, Origin] = {}
        self.dicts: dict[int, DictOverlay] = {}
        self.lists: dict[int, ListOverlay] = {}
        self.sets: dict[int, SetOverlay] = {}
        self.instances: dict[int, DictOverlay] = {}
        #: Containers whose contents are still partly raw, by id of the copy.
        self.unsettled: dict[int, DictOverlay | ListOverlay | SetOverlay | KeysOverlay] = {}
        self.slots: dict[int, SlotOverlay] = {}
        self.cells: dict[int, CellOverlay] = {}
        self._class_sources: dict[int, Source | None] = {}
        #: `ContainerFamily.check_keys`, which interprets the program's `__hash__` and `__eq__`.
        self.check_keys: Callable[[Any, Any], None]

    def load(self, raw: Any, source: Source) -> Any:
        """What the program holds for an object from outside: the loader's."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------------------------------------------
    # Instance dicts and slots

    def instance_dict(self, value: Any) -> DictOverlay | None:
        """The overlay of the `__dict__` of an object from outside; None for objects of the program's own making."""
        overlay = self.instances.get(id(value))
        if overlay is not None:
            return overlay
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
            overlay = self.instances[id(value)] = self.dicts[id(shared.value)]
            return overlay
        overlay = DictOverlay(dict(raw_dict), raw_dict, source, owner=value)
        self.instances[id(value)] = overlay
        self.dicts[id(overlay.copy)] = self.unsettled[id(overlay.copy)] = overlay
        self.by_value[id(overlay.copy)] = Origin(overlay.copy, raw_dict, source)
        self.by_raw[id(raw_dict)] = self.by_value[id(overlay.copy)]
        return overlay

    def slot_overlay(self, value: Any) -> SlotOverlay | None:
        """Slots of an object from outside; None for objects of the program's own making."""
        overlay = self.slots.get(id(value))
        if overlay is None and id(value) in self.by_value:
            overlay = self.slots[id(value)] = SlotOverlay(value)
        return overlay

    def class_source(self, cls: type, of: Source | None = None) -> Source | None:
        """The source that class attributes of `cls` are read from; None for classes made by the program.

        A class without an importable name is reached through an instance of it (`of`).
        """
        known = self._class_sources.get(id(cls), MISSING)
        if not isinstance(known, Missing) and (known is not None or of is None):
            return known
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

    def base_source(self, start: type, base: type) -> Source | None:
        """As `class_source(base)`, for a base of `start`: one that has no importable name is found among the bases."""
        source = self.class_source(base)
        of = self.class_source(start) if source is None and base.__flags__ & HEAP_TYPE else None
        if of is not None:
            order = self.sources.attribute(of, "__mro__")
            index = type.__getattribute__(start, "__mro__").index(base)
            source = self._class_sources[id(base)] = self.sources.item(order, index)
        return source

    def has_identity_hash(self, value: Any) -> bool:
        """Whether hashing and comparing `value` natively runs no Python code. That its class has no such code is
        guarded."""
        if not has_identity_hash(value):
            return False
        kind = type(value)
        if kind is tuple or kind is frozenset:
            return all(map(self.has_identity_hash, value))
        if isinstance(value, torch.Tensor):
            method = torch.Tensor.__hash__
            self.guards.class_lookup(self.sources.named("torch", "Tensor"), "__hash__", method)
            return not is_replacement(method)
        if kind.__flags__ & HEAP_TYPE and kind.__hash__ is object.__hash__:
            source = self.class_source(kind)
            if source is not None:
                self.guards.class_lookup(source, "__hash__", object.__hash__)
                self.guards.class_lookup(source, "__eq__", object.__eq__)
        return True

    # ------------------------------------------------------------------------------------------------------------------
    # Dicts

    def key_part(self, overlay: DictOverlay, key: Any) -> Any:
        """What an `Item` source holds for `key`, which is in the dict: plain data, or the source of an object."""
        if is_plain(key):
            return key
        if type(key) is tuple:  # `table[type(p), type(q)]`: by its place in the dict, with what it holds
            for index, each in enumerate(overlay.base):
                if each == key:
                    source = self.sources.key_at(overlay.source, index)
                    self._load_key(each, source)
                    return source
        origin = self.by_value.get(id(key))
        if not has_identity_hash(key) and overlay.whole:  # the key that the dict has, which may be another object
            place = next((index for index, each in enumerate(overlay.base) if each is key or each == key), None)
            if place is not None:
                return self.sources.key_at(overlay.source, place)
        if origin is not None:
            return origin.source
        named = self._named(key)
        if named is not None:
            return named
        raise Break("dict-key", f"a dict from outside is looked up with a key of type {type(key).__name__}")

    def _named(self, key: Any) -> Source | None:
        """Where a key is found by its name, if it has one that leads to it whatever the program does."""
        if not isinstance(key, (type, types.FunctionType, types.ModuleType, *_torch.OPERATOR_TYPES)):
            return None
        ref = self.guards.reference(key)
        return self.sources.named(ref.module, ref.qualname) if ref.portable else None

    def _admit(self, overlay: DictOverlay, key: Any) -> None:
        """Hashing `key` and comparing it with the keys of the dict is right natively, and guarded. Breaks otherwise."""
        if not self.has_identity_hash(key):
            self.dict_keys(overlay)
            self.check_keys(overlay.copy, key)

    def dict_read(self, overlay: DictOverlay, key: Any) -> Any:
        """The value at `key` of a shadowed dict, loaded; MISSING if there is none. Guards what was seen."""
        copy = overlay.copy
        self._admit(overlay, key)
        value = dict.get(copy, key, MISSING)
        if value is MISSING:
            if key not in overlay.base and not overlay.whole and key not in overlay.absent:
                overlay.absent.add(key)
                self._guard_absent(overlay, key)
            return MISSING
        if key in overlay.pending:
            overlay.pending.discard(key)
            raw = value
            value = self.load(raw, self.sources.item(overlay.source, self.key_part(overlay, key)))
            if value is not raw:
                overlay.held[key] = value
                dict.__setitem__(copy, key, value)
        return value

    def _guard_absent(self, overlay: DictOverlay, key: Any) -> None:
        if not is_plain(key):
            self._guard_object(overlay, key, False)
        elif isinstance(overlay.owner, torch.nn.Module) and isinstance(key, str):
            self.guards.absent_from_module(self.by_value[id(overlay.owner)].source, key)
        else:
            self.guards.has_key(overlay.source, key, False)

    def _guard_object(self, overlay: DictOverlay, key: Any, present: bool) -> None:
        """Guards that an object is a key, or none: by its name, or by all keys that there are."""
        named = self._named(key)
        if named is None or overlay.owner is not None:
            self.dict_keys(overlay)
        else:
            self.guards.has_key(overlay.source, named, present)

    def dict_has(self, overlay: DictOverlay, key: Any) -> bool:
        """`key in dict`, guarded without looking at the value."""
        self._admit(overlay, key)
        present = dict.__contains__(overlay.copy, key)
        if overlay.whole or (key in overlay.base) != present or (present and key not in overlay.pending):
            return present
        if not present:
            if key not in overlay.absent:
                overlay.absent.add(key)
                self._guard_absent(overlay, key)
            return False
        if is_plain(key):
            self.guards.has_key(overlay.source, key, True)
        else:
            self._guard_object(overlay, key, True)
        return True

    def read_open(self, overlay: DictOverlay, key: OpenText) -> Any:
        """`dict_read` at the key that a text is on each call; the text is fixed where the program wrote to the dict."""
        if not self._stays_open(overlay):
            return self.dict_read(overlay, key.fixed())
        if key.now not in overlay.base:
            self.guards.has_key(overlay.source, key.source, False)
            return MISSING
        return self.load(overlay.base[key.now], self.sources.item(overlay.source, key.source))

    def read_chosen(self, overlay: DictOverlay | ListOverlay, key: Source, now: int) -> Any:
        """What a list or dict holds at an integer at `key`, `now` in this call; `MISSING` where that must be fixed."""
        if overlay.changed:
            return MISSING
        if isinstance(overlay, DictOverlay):
            if overlay.owner is not None or now not in overlay.base:
                return MISSING
            if any(type(each) is not int for each in overlay.base):
                return MISSING
        elif overlay.state != "raw" or overlay.base_class is not list or not 0 <= now < len(overlay.base):
            return MISSING
        return self.load(overlay.base[now], self.sources.item(overlay.source, key))

    def has_open(self, overlay: DictOverlay, key: OpenText) -> bool:
        """`dict_has`, as `read_open`."""
        if not self._stays_open(overlay):
            return self.dict_has(overlay, key.fixed())
        present = key.now in overlay.base
        self.guards.has_key(overlay.source, key.source, present)
        return present

    def _stays_open(self, overlay: DictOverlay) -> bool:
        """Whether the dict is as the call found it, and all its keys are compared as text is."""
        return not overlay.changed and overlay.owner is None and all(type(each) is str for each in overlay.base)

    def dict_write(self, overlay: DictOverlay, key: Any, value: Any) -> None:
        self._admit(overlay, key)
        if _is_identity(key) or key in overlay.deleted:  # which puts a key at the end, wherever it was
            self.dict_keys(overlay)
        overlay.changed = True
        overlay.written.setdefault(key)
        _overwrite(overlay, key)
        base_setitem(overlay.copy)(overlay.copy, key, value)

    def dict_delete(self, overlay: DictOverlay, key: Any) -> bool:
        """Removes `key`; False if it was not there."""
        if not self.dict_has(overlay, key):
            return False
        if key in overlay.written and not overlay.whole:
            self._guard_before(overlay, key)
        overlay.changed = True
        overlay.written.pop(key, None)
        if key in overlay.base:
            overlay.deleted.add(key)
        _overwrite(overlay, key)
        base_delitem(overlay.copy)(overlay.copy, key)
        return True

    def _guard_before(self, overlay: DictOverlay, key: Any) -> None:
        """Guards whether a key was there that the program wrote, perhaps without looking."""
        if key not in overlay.base:
            if key not in overlay.absent:
                overlay.absent.add(key)
                self._guard_absent(overlay, key)
        elif key in overlay.unseen:
            if is_plain(key):
                self.guards.has_key(overlay.source, key, True)
            else:
                self.dict_keys(overlay)

    def dict_keys(self, overlay: DictOverlay) -> None:
        """Guards the keys and their order: from here on membership, length and iteration need no more guards."""
        if overlay.whole:
            return
        overlay.whole = True
        keys = tuple(overlay.base)
        if all(map(is_plain, keys)):
            self.guards.keys_are(overlay.source, keys)
            for index, key in enumerate(keys):
                if type(key) is not str:
                    self.guard_members(key, self.sources.key_at(overlay.source, index))
            return
        self.guards.length_is(overlay.source, len(keys))
        for index, key in enumerate(keys):
            self._load_key(key, self.sources.key_at(overlay.source, index))

    def _load_key(self, key: Any, source: Source) -> None:
        """Guards that the key at `source` is `key`. Raises `Break` where the program holds something else for it."""
        loaded = self.load(key, source)
        same = loaded is key
        if type(key) is type(loaded) is tuple:
            same = all(each is other or (is_plain(each) and each == other) for each, other in zip(loaded, key))
        if not same:
            raise Break("dict-key", f"a container from outside is read whole, with a key of type {type(key).__name__}")

    def keys_view(self, overlay: DictOverlay) -> Any:
        """`dict.keys()`: nothing is guarded before more of it is looked at than single keys."""
        copy = overlay.copy
        view = dict.keys(copy) if type(copy) is dict else copy.keys()
        if not overlay.whole:
            self.unsettled[id(view)] = KeysOverlay(view, overlay)
        return view

    def keys_settle(self, overlay: KeysOverlay) -> Any:
        """Guards all keys and their order: the view is an ordinary one from here on."""
        self.dict_keys(overlay.of)
        self.unsettled.pop(id(overlay.view), None)
        return overlay.view

    def dict_settle(self, overlay: DictOverlay) -> dict:
        """All keys guarded and all values loaded: the copy is an ordinary dict from here on."""
        self.dict_keys(overlay)
        if overlay.pending:
            for key in [key for key in dict.__iter__(overlay.copy) if key in overlay.pending]:
                self.dict_read(overlay, key)
        self.unsettled.pop(id(overlay.copy), None)
        return overlay.copy

    # ------------------------------------------------------------------------------------------------------------------
    # Members of enumerations

    def guard_members(self, value: Any, source: Source | None) -> None:
        """Guards what members of enumerations in plain data hold: native code reads that as data, and a program may
        write it. `source`: where `value` is found; None in a set, whose members are found by their class."""
        kind = type(value)
        if kind is tuple:
            for index, each in enumerate(value):
                if type(each) not in PLAIN_TYPES:
                    self.guard_members(each, None if source is None else self.sources.item(source, index))
        elif kind is frozenset:
            for each in value:
                self.guard_members(each, None)
        elif isinstance(value, enum.Enum):
            at = self._member_of_class(value) if source is None else source
            for name, held in vars(value).items():
                if name not in _NOTES_OF_ENUM and is_plain(held):
                    self.guards.equals(self.sources.attribute(at, name), held)

    def _member_of_class(self, member: enum.Enum) -> Source:
        cls = type(member)
        source = self.class_source(cls)
        name = next((name for name, each in cls._member_map_.items() if each is member), None)
        if source is None or name is None:
            raise Break("opaque-value", f"a set with {member!r} in it is looked at")
        return self.sources.item(self.sources.attribute(source, "_member_map_"), name)

    # ------------------------------------------------------------------------------------------------------------------
    # Lists, sets

    def list_settle(self, overlay: ListOverlay) -> Any:
        """Length guarded and all elements loaded: the copy is an ordinary list or deque from here on."""
        if overlay.state != "settled":
            overlay.state = "settled"
            self.unsettled.pop(id(overlay.copy), None)
            self.guards.length_is(overlay.source, len(overlay.base))
            base = overlay.base_class
            for position, element in enumerate(base.__iter__(overlay.copy)):
                if type(element) is Pending:
                    base.__setitem__(overlay.copy, position, self._load_element(overlay, element))
        return overlay.copy

    def _load_element(self, overlay: ListOverlay, element: Pending) -> Any:
        loaded = self.load(element.raw, self.sources.item(overlay.source, element.index))
        if loaded is not element.raw:
            overlay.held[element.index] = loaded
        return loaded

    def list_read(self, overlay: ListOverlay, index: int) -> Any:
        """`list[index]` for an int; only that element is guarded where that suffices. May raise IndexError."""
        if overlay.state != "raw" or not 0 <= index < len(overlay.base):
            return overlay.base_class.__getitem__(self.list_settle(overlay), index)
        element = overlay.base_class.__getitem__(overlay.copy, index)
        if type(element) is Pending:
            element = self._load_element(overlay, element)
            overlay.base_class.__setitem__(overlay.copy, index, element)
        return element

    def list_append(self, overlay: ListOverlay, values: Any) -> None:
        """Appends without looking at what is there."""
        if overlay.state == "raw":
            overlay.state = "appended"
        overlay.changed = True
        overlay.base_class.extend(overlay.copy, values)

    def set_settle(self, overlay: SetOverlay) -> set:
        if not overlay.settled:
            overlay.settled = True
            self.unsettled.pop(id(overlay.copy), None)
            elements = tuple(map(_torch.named_operator, overlay.base))
            if all(map(is_plain, elements)):
                self.guards.keys_are(overlay.source, elements, ordered=False)
                self.guard_members(frozenset(elements), None)
            else:
                self.guards.length_is(overlay.source, len(elements))
                for index, element in enumerate(overlay.order):
                    self._load_key(element, self.sources.key_at(overlay.source, index))
                hashed = next((each for each in overlay.order if not self.has_identity_hash(each)), None)
                if hashed is not None:
                    self.check_keys(overlay.copy, hashed)
        return overlay.copy

    def settle(self, value: Any) -> Any:
        """Loads whatever is still raw in `value` itself, if it is a container from outside; returns it."""
        overlay = self.unsettled.get(id(value))
        if overlay is not None:
            if type(overlay) is DictOverlay:
                self.dict_settle(overlay)
            elif type(overlay) is ListOverlay:
                self.list_settle(overlay)
            elif type(overlay) is KeysOverlay:
                self.keys_settle(overlay)
            else:
                assert isinstance(overlay, SetOverlay)
                self.set_settle(overlay)
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
                self.cells[id(cell)] = CellOverlay(cell, source, contents, origin.source, index)
            elif known.source is not source:
                self.guards.same_object(source, known.source)

    def cell_read(self, overlay: CellOverlay) -> Any:
        """The contents, loaded; MISSING if the cell is empty."""
        if not overlay.loaded:
            overlay.loaded = True
            try:
                raw = overlay.cell.cell_contents
            except ValueError:
                raise Break("empty-cell", "a closure variable from outside is read before it has a value") from None
            overlay.value = overlay.initial = self.load(raw, overlay.contents)
        return overlay.value

    def cell_write(self, overlay: CellOverlay, value: Any) -> None:
        overlay.loaded = True
        overlay.written = True
        overlay.value = value


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


def _overwrite(overlay: DictOverlay, key: Any) -> None:
    """What is at `key` goes: where it was not looked at, a write of the same is a write nonetheless."""
    if key in overlay.pending:
        overlay.pending.discard(key)
        overlay.unseen.add(key)


def _is_identity(key: Any) -> bool:
    """Whether a key is made of what `id()` gave, so that nobody knows if the dict has it."""
    return any(map(_is_identity, key)) if type(key) is tuple else type(key) is IdentityNumber
