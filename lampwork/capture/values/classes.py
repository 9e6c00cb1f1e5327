"""`Classes`: what is found in classes from outside, what the program writes to them, and what descriptors give.

Look-ups along a class's bases are guarded by what they found.
"""

from __future__ import annotations

import abc
import collections
import types
from types import FunctionType
from typing import TYPE_CHECKING, Any

from lampwork.capture.machine import UNBOUND, World
from lampwork.capture.machine.attributes import NATIVE_KINDS
from lampwork.capture.outside.overlay import Break
from lampwork.capture.outside.plain import HEAP_TYPE
from lampwork.capture.record.fake import Fake
from lampwork.ir.reference import is_registered
from lampwork.ir.source import Source

if TYPE_CHECKING:
    from lampwork.capture.world import TorchWorld

_FIELD = type(collections.namedtuple("_Fields", "field").field)  # type: ignore[attr-defined]


class Classes:
    """The classes of one capture."""

    def __init__(self, world: TorchWorld) -> None:
        self.world = world
        #: What a class was found to have under a name, by id of the class and name.
        self.found: dict[tuple[int, str], tuple[bool, Any]] = {}
        #: Class attributes that the program wrote: (id of the class, name) -> (class, value).
        self.writes: dict[tuple[int, str], tuple[type, Any]] = {}
        self._keep: list[type] = []

    def lookup(self, cls: type, name: str) -> tuple[bool, Any]:
        key = (id(cls), name)
        found = self.found.get(key)
        if found is None:
            self._keep.append(cls)
            found = self.found[key] = self._guarded_lookup(cls, name)
        return found

    def _guarded_lookup(self, cls: type, name: str) -> tuple[bool, Any]:
        if cls is Fake:
            return self.world.tensor_attributes.class_entry(name)
        if cls.__flags__ & HEAP_TYPE and self.world.loader.class_source(cls) is None:
            self._look_in_bases(cls, name)
        for owner in type.__getattribute__(cls, "__mro__"):
            if (id(owner), name) in self.writes:
                return True, self.writes[id(owner), name][1]
            namespace = type.__dict__["__dict__"].__get__(owner)
            if name in namespace:
                return True, self._entry(cls, owner, name, namespace[name])
        if cls.__flags__ & HEAP_TYPE:
            source = self.world.loader.class_source(cls)
            if source is not None:
                self.world.guards.class_lookup(source, name, None)
        return False, None

    def _look_in_bases(self, cls: type, name: str) -> None:
        """Guards what a class that the program made finds in those that were there before, up to where it finds it."""
        for base in type.__getattribute__(cls, "__mro__"):
            if base is not cls:
                self.lookup(base, name)
            if (id(base), name) in self.writes or name in type.__dict__["__dict__"].__get__(base):
                return

    def _entry(self, cls: type, owner: type, name: str, raw: Any) -> Any:
        """The raw entry `name` of a class, guarded as found through `cls`."""
        if not cls.__flags__ & HEAP_TYPE:
            return raw
        source = self.world.loader.class_source(cls)
        if source is None:
            return raw
        kind = type(raw)
        if kind is FunctionType:
            self.world.guards.class_lookup(source, name, raw)
            if id(raw) not in self.world.loader.by_value:
                self.world.loader.remember(raw, raw, self._entry_source(owner, source, name))
            return raw
        if kind is staticmethod or kind is classmethod:
            inner = raw.__func__
            if type(inner) is FunctionType:
                self.world.guards.class_lookup(source, name, raw)
                if id(inner) not in self.world.loader.by_value:
                    entry = self._entry_source(owner, source, name)
                    self.world.loader.remember(inner, inner, self.world.sources.attribute(entry, "__func__"))
                return raw
        if kind in NATIVE_KINDS or kind is _FIELD:
            self.world.guards.class_lookup(source, name, raw)
            return raw
        return self.world.loader.load(raw, self.world.sources.class_attribute(source, name))

    def own_entry(self, cls: type, name: str, raw: Any) -> Any:
        """The entry `name` of the class's own dict, where no subclass hides it."""
        return self._entry(cls, cls, name, raw)

    def _entry_source(self, owner: type, source: Source, name: str) -> Source:
        """Where a function of a class is read from: the class that defines it, so that subclasses share one path."""
        owner_source = self.world.loader.class_source(owner)
        return self.world.sources.class_attribute(owner_source if owner_source is not None else source, name)

    def note_bases(self, cls: Any, asked: Any = None) -> None:
        if not isinstance(cls, type) or not cls.__flags__ & HEAP_TYPE or cls is asked:
            return
        source = self.world.loader.class_source(cls)
        if source is None:  # made by the program, of classes that were there
            for base in cls.__bases__:
                self.note_bases(base, asked)
            return
        self.world.guards.mro_is(source, cls)
        if isinstance(asked, abc.ABCMeta) and asked not in type.__getattribute__(cls, "__mro__"):
            self.world.class_lookup(asked, "__subclasshook__")
            self.world.guards.registered(source, asked, is_registered(cls, asked))

    def note_names(self, cls: type, *names: str) -> None:
        """Native code puts these names of a class into a text."""
        source = self.world.loader.class_source(cls) if cls.__flags__ & HEAP_TYPE else None
        if source is not None:
            for name in names:
                self.world.loader.load(type.__dict__[name].__get__(cls), self.world.sources.attribute(source, name))

    def super_lookup(self, start: type, after: type, name: str) -> tuple[bool, Any]:
        self.note_bases(start)
        order = type.__getattribute__(start, "__mro__")
        position = order.index(after) + 1 if after in order else len(order)
        for base in order[position:]:
            if (id(base), name) in self.writes:
                return True, self.writes[id(base), name][1]
            namespace = type.__dict__["__dict__"].__get__(base)
            source = self.world.loader.base_source(start, base) if base.__flags__ & HEAP_TYPE else None
            if name in namespace:
                return True, self._entry(base, base, name, namespace[name])
            if source is not None:
                self.world.guards.has_key(self.world.sources.instance_dict(source), name, False)
        return False, None

    def store(self, cls: type, name: str, value: Any) -> None:
        if self.world.loader.class_source(cls) is not None and cls.__flags__ & HEAP_TYPE and not name.startswith("__"):
            self.lookup(cls, name)  # what was there is guarded: a write of the same changes nothing
            self.writes[id(cls), name] = (cls, value)
            self.found.clear()
            return
        self._require_own_class(cls)
        World.type_store(self.world, cls, name, value)

    def delete(self, cls: type, name: str) -> None:
        self._require_own_class(cls)
        World.type_delete(self.world, cls, name)

    def _require_own_class(self, cls: type) -> None:
        if self.world.loader.class_source(cls) is not None:
            raise Break("class-write", f"an attribute of class {cls.__qualname__} is written",
                        "Keep state that changes from call to call in an instance.")  # fmt: skip
        self.found.clear()

    # -- descriptors

    def get_through(self, attribute: Any, obj: Any, cls: type) -> Any:
        kind = type(attribute)
        if kind is property:
            if obj is not UNBOUND and attribute.fget is not None:
                origin = self.world.loader.origin(attribute)
                if origin is None:
                    return self.world.call(attribute.fget, (obj,), {})
                getter = self.world.loader.load(attribute.fget, self.world.sources.attribute(origin.source, "fget"))
                return self.world.call(getter, (obj,), {})
        elif obj is not UNBOUND and (kind is types.GetSetDescriptorType or kind is types.MemberDescriptorType):
            return self.world.families.plain.native_attribute(attribute, obj)
        return World.descriptor_get(self.world, attribute, obj, cls)

    def delete_through(self, obj: Any, name: str) -> bool:
        found, attribute = self.world.class_lookup(type(obj), name)
        if found and type(attribute) is property and attribute.fdel is not None:
            origin = self.world.loader.origin(attribute)
            if origin is not None:
                deleter = self.world.loader.load(attribute.fdel, self.world.sources.attribute(origin.source, "fdel"))
                self.world.machine.call(deleter, (obj,))
                return True
        return World.delete_through_descriptor(self.world, obj, name)

    def store_through(self, obj: Any, name: str, value: Any) -> bool:
        found, attribute = self.world.class_lookup(type(obj), name)
        if found and type(attribute) is property and attribute.fset is not None:
            origin = self.world.loader.origin(attribute)
            setter = attribute.fset
            if origin is not None:
                setter = self.world.loader.load(setter, self.world.sources.attribute(origin.source, "fset"))
            self.world.machine.call(setter, (obj, value))
            return True
        return World.store_through_descriptor(self.world, obj, name, value)
