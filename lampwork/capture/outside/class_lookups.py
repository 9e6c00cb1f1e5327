"""`ClassLookups`: what is found in classes from outside, along their bases, guarded by what was found.

A class that the program made is looked up in as it is; what it finds in a base that was there before is guarded there.
"""

from __future__ import annotations

import abc
import collections
from types import BuiltinFunctionType, FunctionType, MethodWrapperType
from typing import TYPE_CHECKING, Any

import torch

from lampwork.capture.machine.attributes import NATIVE_KINDS
from lampwork.capture.outside.plain import HEAP_TYPE, bound_owner
from lampwork.capture.record.fake import Fake
from lampwork.fakes.wrappers import Wrapper
from lampwork.ir.reference import is_registered
from lampwork.ir.source import Source

if TYPE_CHECKING:
    from lampwork.capture.outside.load import Loader

_FIELD = type(vars(collections.namedtuple("_Fields", "field"))["field"])
#: The dict of a class, and its order of look-ups, past what its metaclass has of these names.
namespace_of = type.__dict__["__dict__"].__get__
order_of = type.__dict__["__mro__"].__get__


class ClassLookups:
    """The classes of one capture."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
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
            return self._of_tensors(name)
        if issubclass(cls, Wrapper):
            return self.lookup(cls.real_class, name)
        if cls.__flags__ & HEAP_TYPE and self.loader.class_source(cls) is None:
            self._look_in_bases(cls, name)
        for owner in order_of(cls):
            if (id(owner), name) in self.writes:
                self._note_nothing_before(cls, owner, name)
                return True, self.writes[id(owner), name][1]
            namespace = namespace_of(owner)
            if name in namespace:
                return True, self._entry(cls, owner, name, namespace[name])
        if cls.__flags__ & HEAP_TYPE:
            source = self.loader.class_source(cls)
            if source is not None:
                self.loader.guards.class_lookup(source, name, None)
        return False, None

    def _note_nothing_before(self, cls: type, owner: type, name: str) -> None:
        """Guards that a look-up through `cls` comes as far as `owner`, whose entry the program has written."""
        if owner is cls:
            return
        self.note_bases(cls)
        for base in order_of(cls):
            if base is owner:
                return
            if base.__flags__ & HEAP_TYPE:
                self.has_own(base, name)

    def _look_in_bases(self, cls: type, name: str) -> None:
        """Guards what a class that the program made finds in those that were there before, up to where it finds it."""
        for base in order_of(cls):
            if base is not cls:
                self.lookup(base, name)
            if (id(base), name) in self.writes or name in namespace_of(base):
                return

    def _entry(self, cls: type, owner: type, name: str, raw: Any) -> Any:
        """The raw entry `name` of a class, guarded as found through `cls`."""
        if not cls.__flags__ & HEAP_TYPE:
            return raw
        source = self.loader.class_source(cls)
        if source is None:
            return raw
        kind = type(raw)
        if kind is FunctionType:
            self.loader.guards.class_lookup(source, name, raw)
            if id(raw) not in self.loader.by_value:
                self.loader.remember(raw, raw, self._entry_source(owner, source, name))
            return raw
        if kind is staticmethod or kind is classmethod:
            inner = raw.__func__
            if type(inner) is FunctionType:
                self.loader.guards.class_lookup(source, name, raw)
                if id(inner) not in self.loader.by_value:
                    entry = self._entry_source(owner, source, name)
                    self.loader.remember(inner, inner, self.loader.sources.attribute(entry, "__func__"))
                return raw
        if (kind in NATIVE_KINDS and not _is_bound(raw)) or kind is _FIELD:
            self.loader.guards.class_lookup(source, name, raw)
            return raw
        return self.loader.load(raw, self.loader.sources.class_attribute(source, name))

    def has_own(self, cls: type, name: str) -> bool:
        """Whether the class's own dict has the name; that it has not is guarded."""
        found = name in namespace_of(cls)
        source = self.loader.class_source(cls)
        if not found and source is not None:
            self.loader.guards.has_key(self.loader.sources.instance_dict(source), name, False)
        return found

    def own_entries(self, cls: type) -> dict[str, Any]:
        """The class's own dict, loaded where no subclass hides it; its names are guarded."""
        return {name: self._entry(cls, cls, name, namespace_of(cls)[name]) for name in self.own_names(cls)}

    def own_names(self, cls: type) -> tuple[str, ...]:
        """The names in the class's own dict, guarded."""
        names = tuple(namespace_of(cls))
        source = self.loader.class_source(cls) if cls.__flags__ & HEAP_TYPE else None
        if source is not None:
            self.loader.guards.keys_are(self.loader.sources.instance_dict(source), names)
        return names

    def _entry_source(self, owner: type, source: Source, name: str) -> Source:
        """Where a function of a class is read from: the class that defines it, so that subclasses share one path."""
        owner_source = self.loader.class_source(owner)
        return self.loader.sources.class_attribute(owner_source if owner_source is not None else source, name)

    def note_bases(self, cls: Any, asked: Any = None) -> None:
        if not isinstance(cls, type) or not cls.__flags__ & HEAP_TYPE or cls is asked:
            return
        source = self.loader.class_source(cls)
        if source is None:  # made by the program, of classes that were there
            for base in cls.__bases__:
                self.note_bases(base, asked)
            return
        self.loader.guards.mro_is(source, cls)
        if isinstance(asked, abc.ABCMeta) and asked not in order_of(cls):
            self.lookup(asked, "__subclasshook__")
            self.loader.guards.registered(source, asked, is_registered(cls, asked))

    def order(self, cls: type) -> tuple[type, ...]:
        """The order of look-ups of a class, guarded."""
        self.note_bases(cls)
        return order_of(cls)

    def note_names(self, cls: type, *names: str) -> None:
        """Native code puts these names of a class into a text."""
        source = self.loader.class_source(cls) if cls.__flags__ & HEAP_TYPE else None
        if source is not None:
            for name in names:
                self.loader.load(type.__dict__[name].__get__(cls), self.loader.sources.attribute(source, name))

    def super_lookup(self, start: type, after: type, name: str) -> tuple[bool, Any]:
        self.note_bases(start)
        order = order_of(start)
        position = order.index(after) + 1 if after in order else len(order)
        for base in order[position:]:
            if (id(base), name) in self.writes:
                return True, self.writes[id(base), name][1]
            namespace = namespace_of(base)
            source = self.loader.base_source(start, base) if base.__flags__ & HEAP_TYPE else None
            if name in namespace:
                return True, self._entry(base, base, name, namespace[name])
            if source is not None:
                self.loader.guards.has_key(self.loader.sources.instance_dict(source), name, False)
        return False, None

    def write(self, cls: type, name: str, value: Any) -> None:
        """`cls.name = value`, until the region ends. What was there is guarded: a write of the same changes nothing."""
        self.lookup(cls, name)
        self.writes[id(cls), name] = (cls, value)
        self.found.clear()

    def _of_tensors(self, name: str) -> tuple[bool, Any]:
        """The entry `name` of `torch.Tensor` and its bases."""
        loader = self.loader
        source = loader.sources.named("torch", "Tensor")
        for owner in order_of(torch.Tensor):
            namespace = namespace_of(owner)
            if name in namespace:
                found = namespace[name]
                loader.guards.class_lookup(source, name, found)
                if type(found) is FunctionType and not found.__module__.startswith("torch."):
                    loader.remember(found, found, loader.sources.class_attribute(source, name))
                return True, found
        loader.guards.class_lookup(source, name, None)
        return False, None


def _is_bound(function: Any) -> bool:
    """Whether a function in C is bound to an object, which it reads and writes: `class Log: add = entries.append`."""
    kind = type(function)
    return kind is MethodWrapperType or (kind is BuiltinFunctionType and bound_owner(function) is not None)
