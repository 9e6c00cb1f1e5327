"""Calls: what a callable does, so that every Python function in it becomes a frame."""

from __future__ import annotations

import functools
import types
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from .attributes import NATIVE_KINDS
from .classes import BuildClass
from .private import keep_builtins
from .values import UNBOUND, Enter, Part, is_a

keep_builtins(globals())

_METHOD_DESCRIPTOR = types.MethodDescriptorType
_WRAPPER_DESCRIPTOR = types.WrapperDescriptorType
_METHOD_WRAPPER = types.MethodWrapperType
_type_call = type.__call__
# From 3.14 on: stands in the arguments of a `functools.partial` for one that a call gives.
_PLACEHOLDER = getattr(functools, "Placeholder", None)


class Calls(Part):
    """`intrinsics` answers native callables from the host: `function(world, *args, **kwargs)` gives a value or an
    `Enter`.  `substitutes` replaces native callables by Python functions that are interpreted in their place.
    `native_functions` are the Python functions that CPython runs.
    """

    machine: Any
    intrinsics: dict[Any, Any]
    substitutes: dict[Any, Any]
    native_functions: Any

    def should_interpret(self, function: FunctionType) -> bool:
        """Whether a Python function gets a frame; else CPython calls it."""
        return function not in self.native_functions

    def function_parts(self, function: FunctionType) -> tuple[Any, Any, Any]:
        """(defaults, keyword-only defaults, closure) as the call about to be made reads them."""
        return function.__defaults__, function.__kwdefaults__, function.__closure__

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`function(*args, **kwargs)`: a value, or an `Enter` for the Python function that computes it."""
        kind = type(function)
        if kind is FunctionType:
            if function in self.intrinsics:
                return self.intrinsics[function](self, *args, **kwargs)
            if function in self.substitutes:
                return Enter(self.substitutes[function], args, kwargs)
            return Enter(function, args, kwargs)
        if kind is MethodType:
            return self.call(function.__func__, (function.__self__, *args), kwargs)
        if kind is BuiltinFunctionType:
            return self.call_builtin(function, args, kwargs)
        if kind is type:
            if function in self.intrinsics:
                return self.intrinsics[function](self, *args, **kwargs)
            if function in self.substitutes:
                return Enter(self.substitutes[function], args, kwargs)
            return self.instantiate(function, args, kwargs)
        if kind is _METHOD_DESCRIPTOR or kind is _WRAPPER_DESCRIPTOR:
            return self.call_descriptor(function, args, kwargs)
        if kind is _METHOD_WRAPPER:
            found, descriptor = self.class_lookup(function.__objclass__, function.__name__)
            if found and type(descriptor) is _WRAPPER_DESCRIPTOR:
                return self.call_descriptor(descriptor, (function.__self__, *args), kwargs)
            return self.call_native(function, args, kwargs)
        if kind is functools.partial:
            if kwargs:
                kwargs = {**function.keywords, **kwargs}
            else:
                kwargs = dict(function.keywords)
            filled = (*function.args, *args) if _PLACEHOLDER is None else _fill(function.args, args)
            if filled is None:
                return self.call_native(function, args, kwargs)  # refuses them
            return self.call(function.func, filled, kwargs)
        if is_a(function, type):
            found, method = self.class_lookup(kind, "__call__")
            if method is _type_call:
                return self.instantiate(function, args, kwargs)
            return self.call_method(method, function, args, kwargs)
        found, method = self.class_lookup(kind, "__call__")
        if found and type(method) not in NATIVE_KINDS:
            return self.call_method(method, function, args, kwargs)
        return self.call_native(function, args, kwargs)

    def call_method(self, method: Any, obj: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if type(method) is FunctionType:
            return self.call(method, (obj, *args), kwargs)
        if type(method) in NATIVE_KINDS:
            return self.call_native(obj, args, kwargs)
        bound = self.machine.complete(self.descriptor_get(method, obj, type(obj)))
        return self.call(bound, args, kwargs)

    def call_native(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls what is implemented in C.  Worlds override this to decide what may run natively."""
        # Some natives tell an empty dictionary of keywords from none.
        return function(*args, **kwargs) if kwargs else function(*args)

    def call_builtin(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A built-in function, or a built-in method bound to its object."""
        owner = function.__self__
        if owner is None or type(owner) is types.ModuleType:
            if function in self.intrinsics:
                return self.intrinsics[function](self, *args, **kwargs)
            if function in self.substitutes:
                return Enter(self.substitutes[function], args, kwargs)
            return self.call_native(function, args, kwargs)
        if function.__name__ in self.intrinsic_names:
            # The method without its object: the key under which answers are registered.
            found, descriptor = self.class_lookup(type(owner), function.__name__)
            if found and type(descriptor) is _METHOD_DESCRIPTOR:
                if descriptor in self.intrinsics:
                    return self.intrinsics[descriptor](self, owner, *args, **kwargs)
                if descriptor in self.substitutes:
                    return Enter(self.substitutes[descriptor], (owner, *args), kwargs)
            elif is_a(owner, type):
                answer = self.class_intrinsics.get((owner, function.__name__))
                if answer is not None:
                    return answer(self, *args, **kwargs)
        return self.call_native(function, args, kwargs)

    def call_descriptor(self, descriptor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A method of a built-in class, called with its object as first argument."""
        if descriptor in self.intrinsics:
            return self.intrinsics[descriptor](self, *args, **kwargs)
        if descriptor in self.substitutes:
            return Enter(self.substitutes[descriptor], args, kwargs)
        return self.call_native(descriptor, args, kwargs)

    # -- making instances

    def type_of(self, value: Any) -> type:
        """`type(value)` as the program sees it."""
        return type(value)

    def instantiate(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`type.__call__(cls, ...)`: `__new__`, then `__init__`, where either is written in Python."""
        _, new = self.class_lookup(cls, "__new__")
        _, initialise = self.class_lookup(cls, "__init__")
        new_is_native = type(new) is BuiltinFunctionType
        if new_is_native and type(initialise) in NATIVE_KINDS:
            return self.call_native(cls, args, kwargs)
        if new_is_native:
            # Not `new(...)`: CPython's check that a native __new__ is safe for the class is in its wrapper.
            obj = self.call_new(new, cls, args, kwargs)
        else:
            bound = self.machine.complete(self.descriptor_get(new, UNBOUND, cls))
            obj = self.machine.call(bound, (cls, *args), kwargs)
        kind = self.type_of(obj)
        if not issubclass(kind, cls) if type(cls) is type else cls not in kind.__mro__:
            return obj
        found, initialise = self.class_lookup(kind, "__init__")
        if type(initialise) is FunctionType:
            if initialise in self.intrinsics:
                self.intrinsics[initialise](self, obj, *args, **kwargs)
                return obj
            return Enter(initialise, (obj, *args), kwargs, obj)
        if type(initialise) in NATIVE_KINDS:
            initialise(obj, *args, **kwargs)
            return obj
        bound = self.machine.complete(self.descriptor_get(initialise, obj, type(obj)))
        result = self.machine.call(bound, args, kwargs)
        if result is not None:
            raise TypeError(f"__init__() should return None, not '{type(result).__name__}'")
        return obj

    def call_new(self, new: Any, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Calls a native `__new__`: allocates the instance whose `__init__` is about to be interpreted."""
        return new(cls, *args, **kwargs)

    # -- arguments

    def positional_arguments(self, function: Any, values: Any) -> tuple[Any, ...]:
        """The tuple for `function(*values)`."""
        if type(values) is list:
            return tuple(values)
        if self.special(values, "__iter__") is UNBOUND and self.special(values, "__getitem__") is UNBOUND:
            raise TypeError(
                f"{function_text(function)} argument after * must be an iterable, not {type(values).__name__}"
            )
        return tuple(self.collect(values, asks=True))


def _fill(kept: tuple[Any, ...], given: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The positional arguments of a call of a `functools.partial`; None: `given` are too few for its placeholders."""
    places = [index for index, value in enumerate(kept) if value is _PLACEHOLDER]
    if len(places) > len(given):
        return None
    filled = list(kept)
    for index, value in zip(places, given):
        filled[index] = value
    return (*filled, *given[len(places) :])


def function_text(function: Any) -> str:
    """How CPython names a callable in the errors of a call."""
    if is_a(function, BuildClass):
        return "__build_class__()"
    name = getattr(function, "__qualname__", None)
    if name is None:
        return str(function)
    module = getattr(function, "__module__", None)
    if module is not None and module != "builtins":
        return f"{module}.{name}()"
    return f"{name}()"
