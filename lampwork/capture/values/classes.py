"""`Classes`: what the program writes to classes, and what descriptors give. What is found in classes is asked of
`outside/class_lookups.py`."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from lampwork.capture.machine import UNBOUND, World
from lampwork.capture.machine.attributes import is_data_descriptor
from lampwork.capture.outside.overlay import Break
from lampwork.capture.outside.plain import HEAP_TYPE

if TYPE_CHECKING:
    from lampwork.capture.world import TorchWorld


class Classes:
    """The classes of one capture."""

    def __init__(self, world: TorchWorld) -> None:
        self.world = world

    def store(self, cls: type, name: str, value: Any) -> None:
        if self.world.loader.class_source(cls) is not None and cls.__flags__ & HEAP_TYPE and not name.startswith("__"):
            self.world.loader.classes.write(cls, name, value)
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
        self.world.loader.classes.found.clear()

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
        elif id(obj) in self.world.loader.opaque and is_data_descriptor(attribute):
            if type(getattr(kind, "__get__", None)) is types.WrapperDescriptorType:
                self.world.families.opaque.refuse(obj)  # C code reads memory of the object's: a field of a structure
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
