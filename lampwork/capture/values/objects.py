"""`ObjectAttributes`: attributes of objects and classes from outside, read, guarded and written.

Look-ups along a class's bases are guarded by what they found; instance dicts and slots of objects from outside are
shadowed. Modules have a part of their own (`modules.py`), and so have tensors (`tensor_attributes.py`).
"""

from __future__ import annotations

import abc
import builtins
import collections
import types
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.base import CaptureWorld
from lampwork.capture.machine import UNBOUND, World
from lampwork.capture.machine.attributes import NATIVE_KINDS
from lampwork.capture.natives.introspection import class_namespace
from lampwork.capture.outside.overlay import MISSING, Break
from lampwork.capture.outside.plain import HEAP_TYPE
from lampwork.capture.record.fake import TENSOR_KINDS, Fake
from lampwork.ir.reference import is_registered
from lampwork.ir.source import Source

#: Builtin classes whose `__getattribute__` is the generic one under another name.
_GENERIC_GETATTRIBUTE = frozenset({
    dict, list, tuple, set, frozenset, str, int, float, complex, bytes, collections.OrderedDict, collections.deque,
    collections.defaultdict, BaseException, property, *[
        value for value in vars(builtins).values() if isinstance(value, type) and issubclass(value, BaseException)
    ],
})  # fmt: skip
_FIELD = type(collections.namedtuple("_Fields", "field").field)  # type: ignore[attr-defined]
#: What code says of where it was written, which is no part of its digest.
_PLACES_OF_CODE = frozenset({"co_filename", "co_firstlineno", "co_linetable", "co_qualname"})
#: What the interpreter has of every class, and what of that stays while the class does.
_TYPE_NAMES = frozenset({
    "__name__", "__qualname__", "__module__", "__bases__", "__base__", "__doc__", "__abstractmethods__",
    "__annotations__",
})  # fmt: skip
_TYPE_LAYOUT = frozenset({
    "__flags__", "__basicsize__", "__dictoffset__", "__text_signature__",
    "__type_params__",
})  # fmt: skip


class ObjectAttributes(CaptureWorld):
    """The part of a world that knows classes, and attributes of everything but modules and tensors."""

    #: Class attributes that the program wrote: (id of the class, name) -> (class, value).
    class_writes: dict[tuple[int, str], tuple[type, Any]]
    _lookups: dict[tuple[int, str], tuple[bool, Any]]
    _classes: list[type]
    _checked_getattribute: set[int]
    _code_sources: dict[int, Source]

    # ------------------------------------------------------------------------------------------------------------------
    # Classes

    def class_lookup(self, cls: type, name: str) -> tuple[bool, Any]:
        key = (id(cls), name)
        found = self._lookups.get(key)
        if found is None:
            self._classes.append(cls)
            found = self._lookups[key] = self._guarded_lookup(cls, name)
        return found

    def _guarded_lookup(self, cls: type, name: str) -> tuple[bool, Any]:
        if cls is Fake:
            return self.tensor_class_lookup(name)
        if cls.__flags__ & HEAP_TYPE and self.loader.class_source(cls) is None:
            self._look_in_bases(cls, name)
        for owner in type.__getattribute__(cls, "__mro__"):
            if (id(owner), name) in self.class_writes:
                return True, self.class_writes[id(owner), name][1]
            namespace = type.__dict__["__dict__"].__get__(owner)
            if name in namespace:
                return True, self._class_entry(cls, owner, name, namespace[name])
        if cls.__flags__ & HEAP_TYPE:
            source = self.loader.class_source(cls)
            if source is not None:
                self.guards.class_lookup(source, name, None)
        return False, None

    def _look_in_bases(self, cls: type, name: str) -> None:
        """Guards what a class that the program made finds in those that were there before, up to where it finds it."""
        for base in type.__getattribute__(cls, "__mro__"):
            if base is not cls:
                self.class_lookup(base, name)
            if (id(base), name) in self.class_writes or name in type.__dict__["__dict__"].__get__(base):
                return

    def _class_entry(self, cls: type, owner: type, name: str, raw: Any) -> Any:
        """The raw entry `name` of a class, guarded as found through `cls`."""
        if not cls.__flags__ & HEAP_TYPE:
            return raw
        source = self.loader.class_source(cls)
        if source is None:
            return raw
        kind = type(raw)
        if kind is FunctionType:
            self.guards.class_lookup(source, name, raw)
            if id(raw) not in self.loader.by_value:
                self.loader.remember(raw, raw, self._entry_source(owner, source, name))
            return raw
        if kind is staticmethod or kind is classmethod:
            inner = raw.__func__
            if type(inner) is FunctionType:
                self.guards.class_lookup(source, name, raw)
                if id(inner) not in self.loader.by_value:
                    entry = self._entry_source(owner, source, name)
                    self.loader.remember(inner, inner, self.sources.attribute(entry, "__func__"))
                return raw
        if kind in NATIVE_KINDS or kind is _FIELD:
            self.guards.class_lookup(source, name, raw)
            return raw
        return self.loader.load(raw, self.sources.class_attribute(source, name))

    def own_class_entry(self, cls: type, name: str, raw: Any) -> Any:
        """The entry `name` of the class's own dict, where no subclass hides it."""
        return self._class_entry(cls, cls, name, raw)

    def _entry_source(self, owner: type, source: Source, name: str) -> Source:
        """Where a function of a class is read from: the class that defines it, so that subclasses share one path."""
        owner_source = self.loader.class_source(owner)
        return self.sources.class_attribute(owner_source if owner_source is not None else source, name)

    def note_bases(self, cls: Any, asked: Any = None) -> None:
        if not isinstance(cls, type) or not cls.__flags__ & HEAP_TYPE or cls is asked:
            return
        source = self.loader.class_source(cls)
        if source is None:  # made by the program, of classes that were there
            for base in cls.__bases__:
                self.note_bases(base, asked)
            return
        self.guards.mro_is(source, cls)
        if isinstance(asked, abc.ABCMeta) and asked not in type.__getattribute__(cls, "__mro__"):
            self.class_lookup(asked, "__subclasshook__")
            self.guards.registered(source, asked, is_registered(cls, asked))

    def raise_missing(self, obj: Any, name: str) -> None:
        self.note_names(obj if isinstance(obj, type) else self.type_of(obj), "__name__")
        super().raise_missing(obj, name)

    def note_names(self, cls: type, *names: str) -> None:
        """Native code puts these names of a class into a text."""
        source = self.loader.class_source(cls) if cls.__flags__ & HEAP_TYPE else None
        if source is not None:
            for name in names:
                self.loader.load(type.__dict__[name].__get__(cls), self.sources.attribute(source, name))

    def super_lookup(self, start: type, after: type, name: str) -> tuple[bool, Any]:
        self.note_bases(start)
        order = type.__getattribute__(start, "__mro__")
        position = order.index(after) + 1 if after in order else len(order)
        for base in order[position:]:
            if (id(base), name) in self.class_writes:
                return True, self.class_writes[id(base), name][1]
            namespace = type.__dict__["__dict__"].__get__(base)
            source = self.loader.base_source(start, base) if base.__flags__ & HEAP_TYPE else None
            if name in namespace:
                return True, self._class_entry(base, base, name, namespace[name])
            if source is not None:
                self.guards.has_key(self.sources.instance_dict(source), name, False)
        return False, None

    def type_store(self, cls: type, name: str, value: Any) -> None:
        if self.loader.class_source(cls) is not None and cls.__flags__ & HEAP_TYPE and not name.startswith("__"):
            self.class_lookup(cls, name)  # what was there is guarded: a write of the same changes nothing
            self.class_writes[id(cls), name] = (cls, value)
            self._lookups.clear()
            return
        self._require_own_class(cls)
        super().type_store(cls, name, value)

    def type_delete(self, cls: type, name: str) -> None:
        self._require_own_class(cls)
        super().type_delete(cls, name)

    def _require_own_class(self, cls: type) -> None:
        if self.loader.class_source(cls) is not None:
            raise Break("class-write", f"an attribute of class {cls.__qualname__} is written",
                        "Keep state that changes from call to call in an instance.")  # fmt: skip
        self._lookups.clear()

    # ------------------------------------------------------------------------------------------------------------------
    # Attributes

    def load_object_attribute(self, obj: Any, name: str) -> Any:
        """`obj.name` of what is no stand-in."""
        cls = type(obj)
        if self.history_nodes and id(obj) in self.history_nodes:
            return self.load_node_attribute(obj, name)
        if cls is _torch.pybind_metaclass:
            return getattr(obj, name)
        if cls.__flags__ & HEAP_TYPE:
            if id(cls) not in self._checked_getattribute:
                self._checked_getattribute.add(id(cls))
                self.class_lookup(cls, "__getattribute__")
            if isinstance(obj, torch.nn.Module):
                return self.load_module_attribute(obj, name, cls)
            getter = type.__getattribute__(cls, "__getattribute__")
            if type(getter) is types.WrapperDescriptorType and getter.__objclass__ in _GENERIC_GETATTRIBUTE:
                return self.load_with_fallback(self.generic_load, obj, name, cls)
        elif cls is MethodType:
            if not hasattr(MethodType, name) or name in ("__doc__", "__name__", "__qualname__", "__module__"):
                return self.load_attr(obj.__func__, name)
            return getattr(obj, name)
        elif type.__getattribute__(cls, "__getattribute__") is not object.__getattribute__ and not isinstance(
            obj, (type, ModuleType, super)
        ):
            return self.load_with_fallback(self.generic_load, obj, name, cls)
        return World.load_attr(self, obj, name)

    def instance_lookup(self, obj: Any, name: str) -> tuple[bool, Any]:
        overlay = self.loader.instances.get(id(obj))
        if overlay is None:
            if isinstance(obj, ModuleType):
                value = self.read_name(self.module_namespace(obj), name)
                return (False, None) if value is MISSING else (True, value)
            overlay = self.loader.instance_dict(obj)
            if overlay is None:
                return super().instance_lookup(obj, name)
        value = self.loader.dict_read(overlay, name)
        return (False, None) if value is MISSING else (True, value)

    def instance_store(self, obj: Any, name: str, value: Any) -> None:
        if type(obj) in TENSOR_KINDS:
            self.store_tensor_attribute(obj, name, value)
            return
        if isinstance(obj, ModuleType):
            self.write_name(self.module_namespace(obj), name, value)
            return
        if self.loader.origin(obj) is None:
            super().instance_store(obj, name, value)
            return
        found, attribute = self.class_lookup(type(obj), name)
        if found and isinstance(attribute, property):
            raise AttributeError(f"property {name!r} of {type(obj).__name__!r} object has no setter")
        if found and type(attribute) in NATIVE_KINDS and hasattr(attribute, "__set__"):
            slots = self._slots(obj, attribute)
            if type(attribute) is not types.MemberDescriptorType:
                raise Break("attribute-write", f"{type(obj).__name__}.{name} of an object from outside is written")
            slots.write(name, value)
            return
        overlay = self.loader.instance_dict(obj)
        if overlay is None:
            raise AttributeError(f"{type(obj).__name__!r} object has no attribute {name!r}")
        self.loader.dict_write(overlay, name, value)

    def instance_delete(self, obj: Any, name: str) -> None:
        if type(obj) in TENSOR_KINDS and name == "grad":
            self.store_tensor_attribute(obj, name, None)  # which is what torch makes of it, whatever was there
            return
        if isinstance(obj, ModuleType):
            namespace = self.module_namespace(obj)
            if self.read_name(namespace, name) is MISSING:
                raise AttributeError(name)
            self.write_name(namespace, name, MISSING)
            return
        if self.loader.origin(obj) is None:
            super().instance_delete(obj, name)
            return
        found, attribute = self.class_lookup(type(obj), name)
        if found and isinstance(attribute, property):
            raise AttributeError(f"property {name!r} of {type(obj).__name__!r} object has no deleter")
        if found and type(attribute) in NATIVE_KINDS and hasattr(attribute, "__set__"):
            if type(attribute) is not types.MemberDescriptorType:
                raise Break("attribute-write", f"{type(obj).__name__}.{name} of an object from outside is deleted")
            self.native_attribute(attribute, obj)  # which raises where there is nothing
            slots = self._slots(obj, attribute)
            slots.write(name, MISSING)
            return
        overlay = self.loader.instance_dict(obj)
        if overlay is None or not self.loader.dict_delete(overlay, name):
            raise AttributeError(f"{type(obj).__name__!r} object has no attribute {name!r}")

    def descriptor_get(self, attribute: Any, obj: Any, cls: type) -> Any:
        kind = type(attribute)
        if kind is property:
            if obj is not UNBOUND and attribute.fget is not None:
                origin = self.loader.origin(attribute)
                if origin is None:
                    return self.call(attribute.fget, (obj,), {})
                getter = self.loader.load(attribute.fget, self.sources.attribute(origin.source, "fget"))
                return self.call(getter, (obj,), {})
        elif obj is not UNBOUND and (kind is types.GetSetDescriptorType or kind is types.MemberDescriptorType):
            return self.native_attribute(attribute, obj)
        return super().descriptor_get(attribute, obj, cls)

    def delete_through_descriptor(self, obj: Any, name: str) -> bool:
        found, attribute = self.class_lookup(type(obj), name)
        if found and type(attribute) is property and attribute.fdel is not None:
            origin = self.loader.origin(attribute)
            if origin is not None:
                deleter = self.loader.load(attribute.fdel, self.sources.attribute(origin.source, "fdel"))
                self.machine.call(deleter, (obj,))
                return True
        return super().delete_through_descriptor(obj, name)

    def store_through_descriptor(self, obj: Any, name: str, value: Any) -> bool:
        found, attribute = self.class_lookup(type(obj), name)
        if found and type(attribute) is property and attribute.fset is not None:
            origin = self.loader.origin(attribute)
            setter = attribute.fset
            if origin is not None:
                setter = self.loader.load(setter, self.sources.attribute(origin.source, "fset"))
            self.machine.call(setter, (obj, value))
            return True
        return super().store_through_descriptor(obj, name, value)

    def native_attribute(self, descriptor: Any, obj: Any) -> Any:
        """An attribute implemented in C: `__dict__`, `__class__`, slots, the parts of functions and classes."""
        name = descriptor.__name__
        if type(obj) in TENSOR_KINDS:
            return self.load_tensor_attribute(obj, name)
        if name == "__dict__" and not isinstance(obj, (type, ModuleType)):
            overlay = self.loader.instance_dict(obj)
            if overlay is not None:
                return overlay.copy
            namespace = descriptor.__get__(obj, type(obj))
            self.loader.dict_owners[id(namespace)] = obj
            return namespace
        if name == "__class__":
            return self.type_of(obj)
        if type(obj) is types.CodeType and name in _PLACES_OF_CODE:
            return self.place_of_code(obj, name)
        if isinstance(obj, type):
            if name == "__dict__" and self.loader.class_source(obj) is not None:
                return class_namespace(self, obj)
            source = self.loader.class_source(obj) if obj.__flags__ & HEAP_TYPE else None
            if source is None or name in _TYPE_LAYOUT:
                return descriptor.__get__(obj, type(obj))
            if name == "__mro__":
                self.note_bases(obj)
                return descriptor.__get__(obj, type(obj))
            if name in _TYPE_NAMES:
                if name == "__abstractmethods__" and name not in type.__dict__["__dict__"].__get__(obj):
                    self.guards.has_key(self.sources.instance_dict(source), name, False)
                return self.loader.load(descriptor.__get__(obj, type(obj)), self.sources.attribute(source, name))
            raise Break("native-attribute", f"{obj.__qualname__}.{name} is read")
        if isinstance(obj, ModuleType):
            if name == "__dict__":
                return self.namespace_dict(self.module_namespace(obj))
            raise Break("native-attribute", f"{name} of module {obj.__name__} is read")
        origin = self.loader.origin(obj)
        if origin is not None and type(obj) is property:
            return self.loader.load(
                descriptor.__get__(origin.raw, property), self.sources.attribute(origin.source, name)
            )
        if origin is None:
            return descriptor.__get__(obj, type(obj))
        slots = self._slots(obj, descriptor)
        if name in slots.values:
            value = slots.values[name]
            if value is MISSING:
                raise AttributeError(name)
            return value
        if type(obj) is FunctionType:
            if name == "__code__":
                self._code_sources[id(obj.__code__)] = self.sources.attribute(origin.source, name)
                return obj.__code__
            if name == "__closure__" or name == "__globals__":
                raise Break("native-attribute", f"{name} of a function is read")
        try:
            raw = descriptor.__get__(origin.raw, type(origin.raw))
        except AttributeError:
            raise Break("native-attribute", f"{type(obj).__name__}.{name} has no value") from None
        value = self.loader.load(raw, self.sources.attribute(origin.source, name))
        slots.values[name] = slots.initial[name] = value
        return value

    def place_of_code(self, code: types.CodeType, name: str) -> Any:
        """What `code` says of where it was written; guarded where it is that of a function from outside."""
        value = getattr(code, name)
        source = self._code_sources.get(id(code))
        return value if source is None else self.loader.load(value, self.sources.attribute(source, name))

    def _slots(self, obj: Any, descriptor: Any) -> Any:
        overlay = self.loader.slot_overlay(obj)
        if overlay is None:
            raise Break("native-attribute", f"{type(obj).__name__}.{descriptor.__name__} is accessed")
        return overlay
