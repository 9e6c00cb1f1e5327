"""Attributes of objects from outside, read, guarded and written: instance dicts and slots are shadowed.

What a class has is in `classes.py`. Modules of `torch.nn` have a family of their own (`modules.py`), as have tensors.
"""

from __future__ import annotations

import builtins
import collections
import sys
import types
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from lampwork import _torch
from lampwork.capture.machine import World
from lampwork.capture.machine.attributes import NATIVE_KINDS
from lampwork.capture.natives.introspection import class_namespace
from lampwork.capture.outside import facts
from lampwork.capture.outside.overlay import MISSING, Break
from lampwork.capture.outside.plain import HEAP_TYPE
from lampwork.capture.record.fake import TENSOR_KINDS
from lampwork.capture.values.family import Family
from lampwork.ir.reference import namespace_of
from lampwork.ir.source import Source

if TYPE_CHECKING:
    from lampwork.capture.world import TorchWorld

#: Builtin classes whose `__getattribute__` is the generic one under another name.
_GENERIC_GETATTRIBUTE = frozenset({
    dict, list, tuple, set, frozenset, str, int, float, complex, bytes, collections.OrderedDict, collections.deque,
    collections.defaultdict, BaseException, property, *[
        value for value in vars(builtins).values() if isinstance(value, type) and issubclass(value, BaseException)
    ],
})  # fmt: skip
#: What code says of where it was written, which is no part of its digest.
_PLACES_OF_CODE = frozenset({"co_filename", "co_firstlineno", "co_linetable", "co_qualname"})
#: What the interpreter has of every class, and what of that stays while the class does.
_TYPE_NAMES = frozenset({
    "__name__", "__qualname__", "__module__", "__bases__", "__base__", "__doc__", "__abstractmethods__",
    "__annotations__", "__annotate__",
})  # fmt: skip
_TYPE_LAYOUT = frozenset({
    "__flags__", "__basicsize__", "__dictoffset__", "__text_signature__",
    "__type_params__",
})  # fmt: skip


class ObjectFamily(Family):
    """All values that no other family has: objects, classes, functions, plain data."""

    def __init__(self, world: TorchWorld) -> None:
        super().__init__(world)
        #: Where code that the program holds is found, by id.
        self.code_sources: dict[int, Source] = {}

    def load_attr(self, obj: Any, name: str) -> Any:
        cls = type(obj)
        if self.world.histories.nodes and id(obj) in self.world.histories.nodes:
            return self.world.histories.load(obj, name)
        if cls is _torch.pybind_metaclass:
            return getattr(obj, name)
        if cls is types.TracebackType and name == "tb_frame":  # it goes on, and what stands for it does not
            raise Break("native-attribute", "the frame of a traceback is read")
        if cls in _torch.SCHEMA_TYPES and self.world.loader.origin(obj) is None:  # of an operator that native code gave
            return getattr(obj, name)
        if cls in _torch.OPERATOR_SPACES:  # what an operator is found by is native, and its own
            _torch.look_up_operator(obj, name)
        if cls.__flags__ & HEAP_TYPE:
            getter = self.world.class_lookup(cls, "__getattribute__")[1]
            if type(getter) is types.WrapperDescriptorType and getter.__objclass__ in _GENERIC_GETATTRIBUTE:
                return self.world.load_with_fallback(self.world.generic_load, obj, name, cls)
        elif cls is MethodType:
            if not hasattr(MethodType, name) or name in ("__doc__", "__name__", "__qualname__", "__module__"):
                return self.world.load_attr(obj.__func__, name)
            return getattr(obj, name)
        elif self.world.class_lookup(cls, "__getattribute__")[1] is not object.__getattribute__ and not isinstance(
            obj, (type, ModuleType, super)
        ):
            return self.world.load_with_fallback(self.world.generic_load, obj, name, cls)
        return World.load_attr(self.world, obj, name)

    def instance_lookup(self, obj: Any, name: str) -> tuple[bool, Any]:
        overlay = self.world.loader.instances.get(id(obj))
        if overlay is None:
            overlay = self.world.loader.instance_dict(obj)
            if overlay is None:
                return World.instance_lookup(self.world, obj, name)
        value = self.world.loader.dict_read(overlay, name)
        return (False, None) if value is MISSING else (True, value)

    def instance_store(self, obj: Any, name: str, value: Any) -> None:
        if self.world.loader.origin(obj) is None:
            World.instance_store(self.world, obj, name, value)
            return
        found, attribute = self.world.class_lookup(type(obj), name)
        if found and isinstance(attribute, property):
            raise AttributeError(f"property {name!r} of {type(obj).__name__!r} object has no setter")
        if found and type(attribute) in NATIVE_KINDS and hasattr(attribute, "__set__"):
            slots = self._slots(obj, attribute)
            if type(attribute) is not types.MemberDescriptorType:
                raise Break("attribute-write", f"{type(obj).__name__}.{name} of an object from outside is written")
            slots.write(name, value)
            return
        overlay = self.world.loader.instance_dict(obj)
        if overlay is None:
            raise AttributeError(f"{type(obj).__name__!r} object has no attribute {name!r}")
        self.world.loader.dict_write(overlay, name, value)

    def instance_delete(self, obj: Any, name: str) -> None:
        if self.world.loader.origin(obj) is None:
            World.instance_delete(self.world, obj, name)
            return
        found, attribute = self.world.class_lookup(type(obj), name)
        if found and isinstance(attribute, property):
            raise AttributeError(f"property {name!r} of {type(obj).__name__!r} object has no deleter")
        if found and type(attribute) in NATIVE_KINDS and hasattr(attribute, "__set__"):
            if type(attribute) is not types.MemberDescriptorType:
                raise Break("attribute-write", f"{type(obj).__name__}.{name} of an object from outside is deleted")
            self.native_attribute(attribute, obj)  # which raises where there is nothing
            slots = self._slots(obj, attribute)
            slots.write(name, MISSING)
            return
        overlay = self.world.loader.instance_dict(obj)
        if overlay is None or not self.world.loader.dict_delete(overlay, name):
            raise AttributeError(f"{type(obj).__name__!r} object has no attribute {name!r}")

    def native_attribute(self, descriptor: Any, obj: Any) -> Any:
        """An attribute implemented in C: `__dict__`, `__class__`, slots, the parts of functions and classes."""
        name = descriptor.__name__
        if type(obj) in TENSOR_KINDS:
            return self.world.tensor_attributes.load(obj, name)
        if name == "__dict__" and not isinstance(obj, (type, ModuleType)):
            overlay = self.world.loader.instance_dict(obj)
            if overlay is not None:
                return overlay.copy
            namespace = descriptor.__get__(obj, type(obj))
            self.world.loader.dict_owners[id(namespace)] = namespace, obj
            return namespace
        if name == "__class__":
            return self.world.type_of(obj)
        if type(obj) is types.CodeType and name in _PLACES_OF_CODE:
            return self.place_of_code(obj, name)
        if isinstance(obj, type):
            if name == "__dict__" and self.world.loader.class_source(obj) is not None:
                return class_namespace(self.world, obj)
            source = self.world.loader.class_source(obj) if obj.__flags__ & HEAP_TYPE else None
            if source is None or name in _TYPE_LAYOUT:
                return descriptor.__get__(obj, type(obj))
            if name == "__mro__":
                self.world.note_bases(obj)
                return descriptor.__get__(obj, type(obj))
            if name in _TYPE_NAMES:
                if name == "__abstractmethods__":
                    self.world.loader.classes.has_own(obj, name)
                at = self.world.sources.attribute(source, name)
                return self.world.loader.load(descriptor.__get__(obj, type(obj)), at)
            raise Break("native-attribute", f"{obj.__qualname__}.{name} is read")
        if isinstance(obj, ModuleType):
            if name == "__dict__":
                return self.world.names.as_dict(self.world.names.module_namespace(obj))
            raise Break("native-attribute", f"{name} of module {obj.__name__} is read")
        origin = self.world.loader.origin(obj)
        if origin is not None and type(obj) is property:
            return facts.slot(self.world.loader, origin, descriptor)
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
                self.code_sources[id(obj.__code__)] = self.world.sources.attribute(origin.source, name)
                return obj.__code__
            if name == "__globals__" and namespace_of(obj):  # guarded with the function
                names = self.world.names
                return names.as_dict(names.module_namespace(sys.modules[namespace_of(obj)]))
            if name == "__closure__" or name == "__globals__":
                raise Break("native-attribute", f"{name} of a function is read")
        try:
            value = facts.slot(self.world.loader, origin, descriptor)
        except AttributeError:
            raise Break("native-attribute", f"{type(obj).__name__}.{name} has no value") from None
        slots.values[name] = slots.initial[name] = value
        return value

    def place_of_code(self, code: types.CodeType, name: str) -> Any:
        """What `code` says of where it was written; guarded where it is that of a function from outside."""
        value = getattr(code, name)
        source = self.code_sources.get(id(code))
        origin = self.world.loader.origin(code)
        if source is None and origin is not None:
            source = origin.source
        return value if source is None else self.world.loader.load(value, self.world.sources.attribute(source, name))

    def _slots(self, obj: Any, descriptor: Any) -> Any:
        overlay = self.world.loader.slot_overlay(obj)
        if overlay is None:
            raise Break("native-attribute", f"{type(obj).__name__}.{descriptor.__name__} is accessed")
        return overlay


class NamespaceFamily(ObjectFamily):
    """Modules of Python, whose attributes are global variables."""

    def has(self, cls: type) -> bool:
        return issubclass(cls, ModuleType)

    def instance_lookup(self, obj: Any, name: str) -> tuple[bool, Any]:
        value = self.world.names.read(self.world.names.module_namespace(obj), name)
        return (False, None) if value is MISSING else (True, value)

    def instance_store(self, obj: Any, name: str, value: Any) -> None:
        self.world.names.write(self.world.names.module_namespace(obj), name, value)

    def instance_delete(self, obj: Any, name: str) -> None:
        namespace = self.world.names.module_namespace(obj)
        if self.world.names.read(namespace, name) is MISSING:
            raise AttributeError(name)
        self.world.names.write(namespace, name, MISSING)
