"""Attribute access, written out: CPython's algorithm over four primitives that a world may override.

`class_lookup`, `super_lookup`, `instance_lookup`, `instance_store`, `instance_delete` are the only places that
look into classes and instances.  Descriptors written in Python (properties, `__get__`, `__set__`) are interpreted.
"""

from __future__ import annotations

import builtins
import collections
import functools
import types
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from .private import keep_builtins
from .values import UNBOUND, Enter, Part, is_a

keep_builtins(globals())

_type_getattribute = type.__getattribute__
_MANAGED_DICT = 1 << 4  # Py_TPFLAGS_MANAGED_DICT: from 3.12 on, such types in C may have no offset
_MRO = type.__dict__["__mro__"].__get__
_DICT = type.__dict__["__dict__"].__get__
_object_getattribute = object.__getattribute__
_object_setattr = object.__setattr__
_object_delattr = object.__delattr__
_module_getattribute = ModuleType.__getattribute__
_super_self = super.__dict__["__self__"].__get__
_super_start = super.__dict__["__self_class__"].__get__
_super_this = super.__dict__["__thisclass__"].__get__

# Kinds of class attributes, so that most lookups need no search for __get__ and __set__.
_PLAIN_KINDS = frozenset(
    (FunctionType, classmethod, staticmethod, int, str, float, bool, tuple, type(None), dict, list)
)
_NATIVE_DATA = frozenset((types.GetSetDescriptorType, types.MemberDescriptorType))
# Attributes of these kinds are implemented in C: calling them runs no Python code by itself.
NATIVE_KINDS = frozenset(
    (
        types.WrapperDescriptorType, types.MethodDescriptorType, types.BuiltinFunctionType,
        types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
        types.MethodWrapperType,
    )
)  # fmt: skip


def _spelled_out(name: str) -> frozenset[Any]:
    """The attributes of this name in classes in C that spell it out though theirs is the generic one."""
    classes = [cls for cls in vars(builtins).values() if isinstance(cls, type) and cls not in (type, super)]
    classes += [types.SimpleNamespace, collections.deque, collections.defaultdict, collections.OrderedDict]
    classes += [functools.partial, FunctionType]
    if name != "__getattribute__":
        classes.append(ModuleType)
    return frozenset(cls.__dict__[name] for cls in classes if name in cls.__dict__)


_GENERIC_GET = _spelled_out("__getattribute__")
_GENERIC_SET = _spelled_out("__setattr__")
_GENERIC_DELETE = _spelled_out("__delattr__")


def find_in_class(cls: type, name: str) -> Any:
    """The attribute as it lies in the class dictionaries, unbound; UNBOUND if there is none."""
    for base in _MRO(cls) or ():  # None in the few static types that CPython never finished
        namespace = _DICT(base)
        if name in namespace:
            return namespace[name]
    return UNBOUND


def _hidden_lookup(obj: Any, name: str) -> tuple[bool, Any]:
    """instance_lookup for objects that do not show their `__dict__` (typing.TypeVar)."""
    try:
        value = _object_getattribute(obj, name)
    except AttributeError:
        return False, None
    return value is not find_in_class(type(obj), name), value


def _nothing(obj: Any, name: str, cls: type) -> Any:
    return UNBOUND


def is_data_descriptor(attribute: Any) -> bool:
    kind = type(attribute)
    if kind in _PLAIN_KINDS:
        return False
    if kind is property or kind in _NATIVE_DATA:
        return True
    if find_in_class(kind, "__get__") is UNBOUND:
        return False  # it only intercepts stores
    return find_in_class(kind, "__set__") is not UNBOUND or find_in_class(kind, "__delete__") is not UNBOUND


class Attributes(Part):
    machine: Any

    # -- the primitives

    def class_lookup(self, cls: type, name: str) -> tuple[bool, Any]:
        """(found, attribute) of the name in the class's method resolution order, not bound."""
        for base in _MRO(cls) or ():
            namespace = _DICT(base)
            if name in namespace:
                return True, namespace[name]
        return False, None

    def super_lookup(self, start: type, after: type, name: str) -> tuple[bool, Any]:
        """Like `class_lookup(start, name)`, searching only the classes that come after `after`."""
        order = _MRO(start)
        position = order.index(after) + 1 if after in order else len(order)
        for base in order[position:]:
            namespace = _DICT(base)
            if name in namespace:
                return True, namespace[name]
        return False, None

    def instance_lookup(self, obj: Any, name: str) -> tuple[bool, Any]:
        """(found, value) of the name in the object's own `__dict__`, if it has one."""
        cls = type(obj)
        if not cls.__dictoffset__ and not cls.__flags__ & _MANAGED_DICT:
            return False, None
        try:
            namespace = _object_getattribute(obj, "__dict__")
        except AttributeError:
            return _hidden_lookup(obj, name)
        if name in namespace:
            return True, namespace[name]
        return False, None

    def instance_store(self, obj: Any, name: str, value: Any) -> None:
        """Stores into the object's own `__dict__` or slot; no descriptor of Python code is in the way."""
        _object_setattr(obj, name, value)

    def instance_delete(self, obj: Any, name: str) -> None:
        _object_delattr(obj, name)

    def type_store(self, cls: type, name: str, value: Any) -> None:
        type.__setattr__(cls, name, value)

    def type_delete(self, cls: type, name: str) -> None:
        type.__delattr__(cls, name)

    # -- reading

    def load_attr(self, obj: Any, name: str) -> Any:
        """`obj.name`: a value, or an `Enter` for the Python function that computes it."""
        cls = type(obj)
        getter = _type_getattribute(cls, "__getattribute__")
        if getter is _object_getattribute:
            # The common cases of generic_load: an instance attribute, a method.
            found, attribute = self.class_lookup(cls, name)
            kind = type(attribute)
            if not found or kind in _PLAIN_KINDS:
                present, value = self.instance_lookup(obj, name)
                if present:
                    return value
                if kind is FunctionType:
                    return MethodType(attribute, obj)
                if not found:
                    return self.load_with_fallback(_nothing, obj, name, cls)
                return self.descriptor_get(attribute, obj, cls)
            return self.load_with_fallback(self.generic_load, obj, name, cls)
        if getter in _GENERIC_GET:
            return self.load_with_fallback(self.generic_load, obj, name, cls)
        if getter is _type_getattribute:
            return self.load_with_fallback(self.type_load, obj, name, cls)
        if getter is _module_getattribute:
            return self.load_with_fallback(self.module_load, obj, name, cls)
        if cls is super:
            return self.super_load(obj, name)
        return self.load_with_fallback(self.custom_load, obj, name, cls)

    def load_with_fallback(self, load: Any, obj: Any, name: str, cls: type) -> Any:
        """`load(obj, name, cls)`, then `__getattr__` where that raises AttributeError or answers UNBOUND."""
        error = None
        value = UNBOUND
        try:
            value = load(obj, name, cls)
            if type(value) is Enter and self.class_lookup(cls, "__getattr__")[0]:
                value = self.machine.complete(value)
        except AttributeError as raised:
            error, value = raised, UNBOUND
        if value is not UNBOUND:
            return value
        found, fallback = self.class_lookup(cls, "__getattr__")
        if found:
            return self.call_attribute(fallback, obj, (name,))
        if error is None:
            self.raise_missing(obj, name)
        assert error is not None
        try:
            raise error
        finally:
            del error

    def generic_load(self, obj: Any, name: str, cls: type) -> Any:
        """`object.__getattribute__`; UNBOUND if there is no such attribute."""
        found, attribute = self.class_lookup(cls, name)
        if found and type(attribute) not in _PLAIN_KINDS and is_data_descriptor(attribute):
            return self.descriptor_get(attribute, obj, cls)
        present, value = self.instance_lookup(obj, name)
        if present:
            return value
        if found:
            return self.descriptor_get(attribute, obj, cls)
        return UNBOUND

    def type_load(self, cls: Any, name: str, metaclass: type) -> Any:
        """`type.__getattribute__`; UNBOUND if there is no such attribute."""
        in_metaclass, meta_attribute = self.class_lookup(metaclass, name)
        if in_metaclass and is_data_descriptor(meta_attribute):
            return self.descriptor_get(meta_attribute, cls, metaclass)
        found, attribute = self.class_lookup(cls, name)
        if found:
            return self.descriptor_get(attribute, UNBOUND, cls)
        if in_metaclass:
            return self.descriptor_get(meta_attribute, cls, metaclass)
        return UNBOUND

    def module_load(self, module: Any, name: str, cls: type) -> Any:
        value = self.generic_load(module, name, cls)
        if value is UNBOUND and name != "__getattr__":
            found, fallback = self.instance_lookup(module, "__getattr__")
            if found:
                return self.call(fallback, (name,), {})
        return value

    def custom_load(self, obj: Any, name: str, cls: type) -> Any:
        """Classes with a `__getattribute__` of their own, in Python or in C."""
        found, getter = self.class_lookup(cls, "__getattribute__")
        return self.call_attribute(getter, obj, (name,))

    def super_load(self, proxy: Any, name: str) -> Any:
        start = _super_start(proxy)
        if start is None or name == "__class__":
            return _object_getattribute(proxy, name)
        found, attribute = self.super_lookup(start, _super_this(proxy), name)
        if not found:
            return super.__getattribute__(proxy, name)
        obj = _super_self(proxy)
        return self.descriptor_get(attribute, UNBOUND if obj is start else obj, start)

    def load_super_attr(self, function: Any, cls: Any, instance: Any, name: str, two_arguments: bool) -> Any:
        """`super().name` or `super(cls, instance).name`; `function` is what the name `super` means there."""
        if function is super:
            return self.load_attr(super(cls, instance), name)
        args = (cls, instance) if two_arguments else ()
        return self.load_attr(self.machine.call(function, args), name)

    def raise_missing(self, obj: Any, name: str) -> None:
        """Raises the AttributeError in CPython's own words."""
        try:
            if is_a(obj, type):
                _type_getattribute(obj, name)
            elif is_a(obj, ModuleType):
                _module_getattribute(obj, name)
            else:
                _object_getattribute(obj, name)
        except AttributeError as error:
            # As PyObject_GetAttr does, for the suggestions in tracebacks.
            if error.name is None and error.obj is None:
                error.name, error.obj = name, obj
            raise
        raise AttributeError(f"'{type(obj).__name__}' object has no attribute '{name}'", name=name, obj=obj)

    # -- descriptors

    def descriptor_get(self, attribute: Any, obj: Any, cls: type) -> Any:
        """What a class attribute gives when read through `obj` (UNBOUND: through the class itself)."""
        kind = type(attribute)
        if kind is FunctionType:
            return attribute if obj is UNBOUND else MethodType(attribute, obj)
        if kind is property:
            if obj is UNBOUND:
                return attribute
            if attribute.fget is None:
                return attribute.__get__(obj, cls)
            return self.call(attribute.fget, (obj,), {})
        if kind is staticmethod:
            return attribute.__func__
        if kind is BuiltinFunctionType or kind is types.MethodWrapperType:
            return attribute
        if kind in NATIVE_KINDS:
            if obj is None:
                return _object_getattribute(None, attribute.__name__)
            return attribute.__get__(None if obj is UNBOUND else obj, cls)
        if kind is classmethod and type(attribute.__func__) is FunctionType:
            return MethodType(attribute.__func__, cls)
        found, getter = self.class_lookup(kind, "__get__")
        if not found:
            return attribute
        if obj is UNBOUND:
            obj = None
        if type(getter) in NATIVE_KINDS:
            return getter(attribute, obj, cls)
        return self.call_attribute(getter, attribute, (obj, cls))

    def call_attribute(self, attribute: Any, obj: Any, args: tuple[Any, ...]) -> Any:
        """Calls a class attribute as a method of `obj`, as the slots of a class written in Python do."""
        kind = type(attribute)
        if kind is FunctionType:
            return Enter(attribute, (obj, *args))
        if kind is WrapperDescriptorType or kind is MethodDescriptorType:
            return self.call_descriptor(attribute, (obj, *args), {})
        bound = self.machine.complete(self.descriptor_get(attribute, obj, type(obj)))
        return self.call(bound, args, {})

    # -- writing

    def store_attr(self, obj: Any, name: str, value: Any) -> None:
        """`obj.name = value`."""
        cls = type(obj)
        setter = _type_getattribute(cls, "__setattr__")
        if setter is _object_setattr or setter in _GENERIC_SET:
            self.generic_store(obj, name, value)
        elif setter is type.__setattr__:
            self.generic_type_store(obj, name, value)
        else:
            _, setter = self.class_lookup(cls, "__setattr__")
            self.machine.complete(self.call_attribute(setter, obj, (name, value)))

    def generic_store(self, obj: Any, name: str, value: Any) -> None:
        """`object.__setattr__`."""
        if not self.store_through_descriptor(obj, name, value):
            self.instance_store(obj, name, value)

    def generic_type_store(self, cls: Any, name: str, value: Any) -> None:
        """`type.__setattr__`."""
        if not self.store_through_descriptor(cls, name, value):
            self.type_store(cls, name, value)

    def store_through_descriptor(self, obj: Any, name: str, value: Any) -> bool:
        """Lets a descriptor written in Python store the value; False if there is none."""
        found, attribute = self.class_lookup(type(obj), name)
        if not found or type(attribute) in _PLAIN_KINDS or type(attribute) in NATIVE_KINDS:
            return False
        if type(attribute) is property:
            if attribute.fset is None:
                return False  # the primitive raises CPython's error
            self.machine.call(attribute.fset, (obj, value))
            return True
        has_setter, setter = self.class_lookup(type(attribute), "__set__")
        if not has_setter or type(setter) in NATIVE_KINDS:
            return False
        self.machine.complete(self.call_attribute(setter, attribute, (obj, value)))
        return True

    def delete_attr(self, obj: Any, name: str) -> None:
        """`del obj.name`."""
        cls = type(obj)
        deleter = _type_getattribute(cls, "__delattr__")
        if deleter is _object_delattr or deleter in _GENERIC_DELETE:
            self.generic_delete(obj, name)
        elif deleter is type.__delattr__:
            if not self.delete_through_descriptor(obj, name):
                self.type_delete(obj, name)
        else:
            _, deleter = self.class_lookup(cls, "__delattr__")
            self.machine.complete(self.call_attribute(deleter, obj, (name,)))

    def generic_delete(self, obj: Any, name: str) -> None:
        """`object.__delattr__`."""
        if not self.delete_through_descriptor(obj, name):
            self.instance_delete(obj, name)

    def delete_through_descriptor(self, obj: Any, name: str) -> bool:
        found, attribute = self.class_lookup(type(obj), name)
        if not found or type(attribute) in _PLAIN_KINDS or type(attribute) in NATIVE_KINDS:
            return False
        if type(attribute) is property:
            if attribute.fdel is None:
                return False
            self.machine.call(attribute.fdel, (obj,))
            return True
        has_deleter, deleter = self.class_lookup(type(attribute), "__delete__")
        if not has_deleter or type(deleter) in NATIVE_KINDS:
            return False
        self.machine.complete(self.call_attribute(deleter, attribute, (obj,)))
        return True

    # -- shorthands

    def attribute(self, obj: Any, name: str) -> Any:
        """`obj.name`, computed to the end."""
        return self.machine.complete(self.load_attr(obj, name))

    def attribute_or(self, obj: Any, name: str, default: Any) -> Any:
        """`getattr(obj, name, default)`."""
        try:
            return self.machine.complete(self.load_attr(obj, name))
        except AttributeError:
            return default

    def special(self, obj: Any, name: str) -> Any:
        """The class attribute behind a special method of `obj` (not bound), UNBOUND if there is none."""
        found, attribute = self.class_lookup(type(obj), name)
        return attribute if found else UNBOUND

    def python_special(self, obj: Any, name: str) -> Any:
        """Like `special`, but UNBOUND too where the method is implemented in C and CPython may call it."""
        found, attribute = self.class_lookup(type(obj), name)
        return attribute if found and type(attribute) not in NATIVE_KINDS else UNBOUND

    def call_special(self, obj: Any, attribute: Any, *args: Any) -> Any:
        """Calls what `special` found, to the end."""
        return self.machine.complete(self.call_attribute(attribute, obj, args))
