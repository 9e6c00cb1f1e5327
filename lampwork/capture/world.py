"""`TorchWorld`: what operations on values mean while a torch program is captured.

Values from outside are loaded and guarded when the program reads them (`load.py`), writes go to shadows (`shadow.py`),
tensors are fakes whose operators are recorded, native functions run only as their effect class allows (`calls.py`).

    names and cells          here
    classes and attributes   here, modules in `modules.py`, tensors in `tensor_attributes.py`
    containers               containers.py
    symbolic integers        sizes.py
    calls                    calls.py, with the tables of natives.py
"""

from __future__ import annotations

import builtins
import collections
import sys
import types
from types import FunctionType, MethodType, ModuleType
from typing import Any
from weakref import ReferenceType, ref

import torch

from lampwork import _torch
from lampwork.capture.assumptions import assumed_branch
from lampwork.capture.calls import NativeCalls
from lampwork.capture.containers import Containers
from lampwork.capture.dynamic import MARKED_ONLY, DynamicPolicy
from lampwork.capture.fake import TENSOR_KINDS, Fake
from lampwork.capture.guards import GuardList, Sources
from lampwork.capture.introspection import class_namespace
from lampwork.capture.load import Loader
from lampwork.capture.machine import UNBOUND, Frame
from lampwork.capture.machine.attributes import NATIVE_KINDS
from lampwork.capture.modules import Modules
from lampwork.capture.number_operations import NumberOperations
from lampwork.capture.numbers import HostNumber, HostNumbers
from lampwork.capture.plain import HEAP_TYPE
from lampwork.capture.shadow import MISSING, Break
from lampwork.capture.sizes import NUMBER_TYPES, SymbolicValues, number
from lampwork.capture.tensor_attributes import TensorAttributes
from lampwork.capture.tensors import TensorInputs
from lampwork.capture.text import UnknownText, UnknownTexts, formatted, is_unknown, joined
from lampwork.capture.unknown import UnknownNumber, UnknownNumbers
from lampwork.capture.unknown_arrays import UnknownArray, UnknownArrays
from lampwork.ir.loops import Location
from lampwork.ir.reference import code_digest
from lampwork.ir.source import Source

_TORCH_DIRECTORY = torch.__file__.rpartition("/")[0] + "/"
#: Builtin classes whose `__getattribute__` is the generic one under another name.
_GENERIC_GETATTRIBUTE = frozenset({
    dict, list, tuple, set, frozenset, str, int, float, complex, bytes, collections.OrderedDict, collections.deque,
    collections.defaultdict, BaseException, property, *[
        value for value in vars(builtins).values() if isinstance(value, type) and issubclass(value, BaseException)
    ],
})  # fmt: skip
_TYPE_NAMES = frozenset({
    "__name__", "__qualname__", "__module__", "__mro__", "__bases__", "__base__", "__doc__", "__flags__",
    "__basicsize__",
    "__class__", "__text_signature__", "__dictoffset__", "__abstractmethods__", "__annotations__", "__type_params__",
})  # fmt: skip


class Namespace:
    """The global variables of a module as the program sees them: values read or written so far, by name."""

    __slots__ = ("raw", "source", "values", "initial", "written", "shadow")

    def __init__(self, raw: dict, source: Source) -> None:
        self.raw = raw
        self.source = source
        self.values: dict[str, Any] = {}
        self.initial: dict[str, Any] = {}
        self.written: dict[str, None] = {}
        #: The program holds these variables as a dict (`globals()`): all reads and writes go to its shadow.
        self.shadow: Any = None


class TorchWorld(
    UnknownTexts, NumberOperations, UnknownArrays, UnknownNumbers, SymbolicValues, NativeCalls, Containers, Modules,
    TensorAttributes,
):  # fmt: skip
    """The world of one capture. Not shared between threads."""

    def __init__(self, recorder: Any, policy: DynamicPolicy = MARKED_ONLY) -> None:
        super().__init__()
        self.recorder = recorder
        self.sources = Sources()
        self.guards = GuardList(self.location)
        self.tensors = TensorInputs(recorder, self.guards, policy)
        self.host_numbers = HostNumbers(recorder, self.guards, self.tensors)
        self.loader = Loader(self.guards, self.sources, self.tensors, self.host_numbers)
        self.namespaces: dict[int, Namespace] = {}
        #: Digests of all functions whose bytecode was interpreted.
        self.code_digests: dict[str, str] = {}
        self._lookups: dict[tuple[int, str], tuple[bool, Any]] = {}
        self._classes: list[type] = []
        #: Class attributes that the program wrote: (id of the class, name) -> (class, value).
        self.class_writes: dict[tuple[int, str], tuple[type, Any]] = {}
        self._parts: dict[int, tuple[Any, Any, Any]] = {}
        self._made_functions: set[int] = set()
        self._module_paths: dict[int, str] = {}
        self._keep: list[Any] = []
        #: The innermost two frames when last asked where we are, the frame that the answer is about, and its module.
        #: Weakly: a generator that nobody finishes closes itself when its frame is let go of.
        self._located: tuple[ReferenceType[Frame], ReferenceType[Frame] | None, ReferenceType[Frame], str] | None = None
        self._locations: dict[tuple[int, int, str], Location] = {}
        self._checked_getattribute: set[int] = set()
        self.install_natives()

    def attach(self, recorder: Any) -> None:
        recorder.location_hook = self.location
        recorder.data_hook = self.note_data
        recorder.write_hook = self.note_write

    # ------------------------------------------------------------------------------------------------------------------
    # Where we are

    def location(self) -> Location:
        """The user's line being interpreted: the innermost outside torch itself, with the module it belongs to."""
        machine = self.__dict__.get("machine")
        if machine is None or not machine.frames:
            return Location()
        top = machine.frames[-1]
        below = machine.frames[-2] if len(machine.frames) > 1 else None  # a generator's frame has several in its life
        known = self._located
        if known is not None and known[0]() is top and (known[1] and known[1]()) is below:
            frame = known[2]()
            if frame is not None:
                return self._location_at(frame, known[3])
        chosen = None
        module = ""
        for frame in reversed(machine.frames):
            code = frame.code
            if code.hidden:
                continue
            if chosen is None and not code.raw.co_filename.startswith(_TORCH_DIRECTORY):
                chosen = frame
            if not module and frame.locals and isinstance(frame.locals[0], torch.nn.Module):
                module = self.module_path(frame.locals[0])
            if chosen is not None and module:
                break
        frame = chosen if chosen is not None else top
        # The frames below stand still while the innermost one runs.
        self._located = ref(top), None if below is None else ref(below), ref(frame), module
        return self._location_at(frame, module)

    def _location_at(self, frame: Frame, module: str) -> Location:
        code = frame.code
        key = id(code), frame.index, module
        found = self._locations.get(key)
        if found is None:
            found = self._locations[key] = Location(code.raw.co_filename, code.line(frame.index - 1), module)
            self._keep.append(code)
        return found

    # ------------------------------------------------------------------------------------------------------------------
    # Names

    def namespace(self, frame: Frame) -> Namespace | None:
        """The globals of a frame; None for a namespace made by the program and for our own code."""
        raw = frame.globals
        found = self.namespaces.get(id(raw))
        if found is None:
            if str(raw.get("__name__", "")).startswith("lampwork.capture."):
                return None  # our own polyfills: not part of the program, nothing to guard
            found = self.namespace_of(raw, frame.function)
        return found

    def namespace_of(self, raw: dict, function: Any) -> Namespace | None:
        name = raw.get("__name__")
        module = sys.modules.get(name) if isinstance(name, str) else None
        if isinstance(name, str) and module is not None and module.__dict__ is raw:
            source: Source = self.sources.instance_dict(self.sources.module(name))
        else:
            origin = self.loader.origin(function)
            if origin is None:
                return None
            source = self.sources.attribute(origin.source, "__globals__")
        found = self.namespaces[id(raw)] = Namespace(raw, source)
        return found

    def module_namespace(self, module: ModuleType) -> Namespace:
        raw = module.__dict__
        found = self.namespaces.get(id(raw))
        if found is None:
            origin = self.loader.origin(module)
            name = module.__name__
            if sys.modules.get(name) is module:
                source: Source = self.sources.module(name)
            elif origin is not None:
                source = origin.source
            else:
                raise Break("opaque-value", f"module {name} is not in sys.modules")
            found = self.namespaces[id(raw)] = Namespace(raw, self.sources.instance_dict(source))
        return found

    def read_name(self, namespace: Namespace, name: str) -> Any:
        """The global variable, loaded; MISSING if there is none. Guards what was seen."""
        if namespace.shadow is not None:
            return self.loader.dict_read(namespace.shadow, name)
        values = namespace.values
        if name in values:
            return values[name]
        raw = namespace.raw.get(name, MISSING)
        if raw is MISSING:
            self.guards.has_key(namespace.source, name, False)
            value: Any = MISSING
        else:
            value = self.loader.load(raw, self.sources.item(namespace.source, name))
        values[name] = namespace.initial[name] = value
        return value

    def namespace_dict(self, namespace: Namespace) -> dict:
        """The global variables of a module as a dict that the program holds."""
        if namespace.shadow is None:
            loaded = self.loader.load(namespace.raw, namespace.source)
            shadow = self.loader.dicts[id(loaded)]
            for name, value in namespace.values.items():
                if name in namespace.written:
                    if value is MISSING:
                        self.loader.dict_delete(shadow, name)
                    else:
                        self.loader.dict_write(shadow, name, value)
                elif value is MISSING:
                    shadow.absent.add(name)
                else:
                    shadow.pending.discard(name)
                    dict.__setitem__(loaded, name, value)
            namespace.written.clear()
            namespace.shadow = shadow
        return namespace.shadow.copy

    def load_global(self, frame: Frame, name: str) -> Any:
        namespace = self.namespace(frame)
        if namespace is None:
            if str(frame.globals.get("__name__", "")).startswith("lampwork.capture."):
                return super().load_global(frame, name)
            value = self.mapping_lookup(frame.globals, name)  # a namespace that the program made, for `exec`
            value = MISSING if value is UNBOUND else value
        else:
            value = self.read_name(namespace, name)
        if value is not MISSING:
            return value
        builtin_names = self.namespaces.get(id(frame.builtins)) or self.namespace_of(frame.builtins, None)
        if builtin_names is None:
            raise Break("opaque-value", "a function runs with builtins of its own")
        value = self.read_name(builtin_names, name)
        if value is MISSING:
            raise NameError(f"name '{name}' is not defined", name=name)
        return value

    def store_global(self, frame: Frame, name: str, value: Any) -> None:
        namespace = self.namespace(frame)
        if namespace is None:
            super().store_global(frame, name, value)
        else:
            self.write_name(namespace, name, value)

    def write_name(self, namespace: Namespace, name: str, value: Any) -> None:
        if namespace.shadow is not None:
            if value is MISSING:
                self.loader.dict_delete(namespace.shadow, name)
            else:
                self.loader.dict_write(namespace.shadow, name, value)
            return
        namespace.values[name] = value
        namespace.written[name] = None

    def delete_global(self, frame: Frame, name: str) -> None:
        namespace = self.namespace(frame)
        if namespace is None:
            super().delete_global(frame, name)
            return
        if self.read_name(namespace, name) is MISSING:
            raise NameError(f"name '{name}' is not defined", name=name)
        if name not in namespace.initial:  # written before it was read: deleted for good only if it was there
            present = name in namespace.raw
            self.guards.has_key(namespace.source, name, present)
            if not present:
                namespace.initial[name] = MISSING
        self.write_name(namespace, name, MISSING)

    def load_cell(self, cell: Any) -> Any:
        shadow = self.loader.cells.get(id(cell))
        if shadow is None:
            return super().load_cell(cell)
        value = self.loader.cell_read(shadow)
        return UNBOUND if value is MISSING else value

    def store_cell(self, cell: Any, value: Any) -> None:
        shadow = self.loader.cells.get(id(cell))
        if shadow is None:
            super().store_cell(cell, value)
        else:
            self.loader.cell_write(shadow, value)

    def delete_cell(self, cell: Any) -> None:
        shadow = self.loader.cells.get(id(cell))
        if shadow is None:
            super().delete_cell(cell)
        else:
            self.loader.cell_write(shadow, MISSING)

    # ------------------------------------------------------------------------------------------------------------------
    # Functions

    def function_parts(self, function: FunctionType) -> tuple[Any, Any, Any]:
        parts = self._parts.get(id(function))
        if parts is not None:
            return parts
        origin = self.loader.origin(function)
        if origin is None:
            if id(function) not in self._made_functions:
                self._keep.append(function)
                self.adopt_function(function)
                origin = self.loader.origin(function)
            if origin is None:
                return function.__defaults__, function.__kwdefaults__, function.__closure__
        source = origin.source
        defaults, keyword_defaults = function.__defaults__, function.__kwdefaults__
        if defaults is not None:
            defaults = self.loader.load(defaults, self.sources.attribute(source, "__defaults__"))
        if keyword_defaults is not None:
            keyword_defaults = self.loader.settle(
                self.loader.load(keyword_defaults, self.sources.attribute(source, "__kwdefaults__"))
            )
        self.loader.register_cells(function)
        name = f"{function.__module__}:{function.__qualname__}"
        self.code_digests[name] = code_digest(function.__code__)
        parts = self._parts[id(function)] = (defaults, keyword_defaults, function.__closure__)
        return parts

    def adopt_function(self, function: FunctionType) -> None:
        """A function that reached the program without being read from anywhere: found by its importable name."""
        reference = self.guards.reference(function)
        if function.__module__.startswith("lampwork.capture."):
            self._made_functions.add(id(function))
            return
        if not reference.portable:
            raise Break("opaque-value", f"the function {function.__qualname__} came from native code")
        source = self.sources.named(reference.module, reference.qualname)
        self.loader.load(function, source)

    def make_function(self, *args: Any) -> FunctionType:
        function = super().make_function(*args)
        self._made_functions.add(id(function))
        self._keep.append(function)
        return function

    def set_function_attribute(self, function: FunctionType, flag: int, value: Any) -> FunctionType:
        made = super().set_function_attribute(function, flag, value)
        self._made_functions.add(id(made))
        self._keep.append(made)
        return made

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
                self.guards.class_lookup(source, name, inner)
                if id(inner) not in self.loader.by_value:
                    entry = self._entry_source(owner, source, name)
                    self.loader.remember(inner, inner, self.sources.attribute(entry, "__func__"))
                return raw
        if kind in NATIVE_KINDS:
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

    def super_lookup(self, start: type, after: type, name: str) -> tuple[bool, Any]:
        order = type.__getattribute__(start, "__mro__")
        position = order.index(after) + 1 if after in order else len(order)
        for base in order[position:]:
            if (id(base), name) in self.class_writes:
                return True, self.class_writes[id(base), name][1]
            namespace = type.__dict__["__dict__"].__get__(base)
            source = self.loader.class_source(base) if base.__flags__ & HEAP_TYPE else None
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

    def load_attr(self, obj: Any, name: str) -> Any:
        cls = type(obj)
        if cls in TENSOR_KINDS:
            return self.load_tensor_attribute(obj, name)
        if cls is _torch.pybind_metaclass:
            return getattr(obj, name)
        if cls in NUMBER_TYPES:
            return self.type_of(obj) if name == "__class__" else super().load_attr(number(obj), name)
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
        return super().load_attr(obj, name)

    def load_super_attr(self, function: Any, cls: Any, instance: Any, name: str, two_arguments: bool) -> Any:
        return super().load_super_attr(function, cls, instance, name, two_arguments)

    def instance_lookup(self, obj: Any, name: str) -> tuple[bool, Any]:
        shadow = self.loader.instances.get(id(obj))
        if shadow is None:
            if isinstance(obj, ModuleType):
                value = self.read_name(self.module_namespace(obj), name)
                return (False, None) if value is MISSING else (True, value)
            shadow = self.loader.instance_dict(obj)
            if shadow is None:
                return super().instance_lookup(obj, name)
        value = self.loader.dict_read(shadow, name)
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
            slots.values[name] = value
            slots.written.add(name)
            return
        shadow = self.loader.instance_dict(obj)
        if shadow is None:
            raise AttributeError(f"{type(obj).__name__!r} object has no attribute {name!r}")
        self.loader.dict_write(shadow, name, value)

    def instance_delete(self, obj: Any, name: str) -> None:
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
            slots.values[name] = MISSING
            slots.written.add(name)
            return
        shadow = self.loader.instance_dict(obj)
        if shadow is None or not self.loader.dict_delete(shadow, name):
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
            shadow = self.loader.instance_dict(obj)
            if shadow is not None:
                return shadow.copy
            namespace = descriptor.__get__(obj, type(obj))
            self.loader.dict_owners[id(namespace)] = obj
            return namespace
        if name == "__class__":
            return self.type_of(obj)
        if isinstance(obj, type):
            if name == "__dict__" and self.loader.class_source(obj) is not None:
                return class_namespace(self, obj)
            if name in _TYPE_NAMES or self.loader.class_source(obj) is None:
                return descriptor.__get__(obj, type(obj))
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

    def _slots(self, obj: Any, descriptor: Any) -> Any:
        shadow = self.loader.slot_shadow(obj)
        if shadow is None:
            raise Break("native-attribute", f"{type(obj).__name__}.{descriptor.__name__} is accessed")
        return shadow

    def type_of(self, value: Any) -> type:
        """`type(value)` as the program sees it."""
        kind = type(value)
        if kind in TENSOR_KINDS:
            return getattr(value, "real_class", torch.Tensor)
        if kind in NUMBER_TYPES:
            return NUMBER_TYPES[kind]
        if kind is UnknownText:
            return str
        if kind is UnknownNumber or kind is UnknownArray:
            return value.kind
        if kind is HostNumber:
            return float
        return types.GeneratorType if type(value).__name__ == "MachineGenerator" else type(value)

    def branch(self, frame: Frame, value: Any, if_true: int, if_false: int) -> bool:
        if type(value) is UnknownNumber and value.tensor is not None:
            value = value.tensor
        if type(value) is Fake:
            assumed = assumed_branch(self, frame, value, if_true, if_false)
            if assumed is not None:
                return assumed
        return super().branch(frame, value, if_true, if_false)

    def format_value(self, value: Any, conversion: int, spec: Any) -> str:
        if is_unknown(value):
            if conversion:
                value = self.convert_value(value, conversion)
            return formatted(self, value, spec or "")
        return super().format_value(value, conversion, spec)

    def build_string(self, parts: list[str]) -> str:
        return joined(parts)

    # ------------------------------------------------------------------------------------------------------------------
    # Imports

    def import_name(self, frame: Frame, name: str, names: Any, level: int) -> Any:
        if self.namespace(frame) is None:
            raise Break("import", f"import of {name} in a namespace of the program's own")
        package = frame.globals.get("__package__") or frame.globals.get("__name__", "").rpartition(".")[0]
        with self.recorder._paused():
            module = __import__(name, {"__name__": frame.globals.get("__name__"), "__package__": package,
                                       "__path__": frame.globals.get("__path__", [])}, None, names, level)  # fmt: skip
        if id(module) not in self.loader.by_value:
            self.loader.remember(module, module, self.sources.module(module.__name__))
        return module

    def import_from(self, module: Any, name: str) -> Any:
        value = self.attribute_or(module, name, UNBOUND)
        if value is UNBOUND and isinstance(module, ModuleType):
            found = sys.modules.get(f"{module.__name__}.{name}")
            if found is not None:
                return self.loader.load(found, self.sources.module(found.__name__))
        return super().import_from(module, name) if value is UNBOUND else value

    def import_star(self, frame: Frame, module: Any) -> None:
        raise Break("import", f"from {module.__name__} import *")
