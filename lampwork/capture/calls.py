"""Calls of native functions while capturing: each runs for real if its effect class allows it, else the graph breaks."""

from __future__ import annotations

import _thread
import collections
import copyreg
import functools
import inspect
import itertools
import logging
import sys
import types
import warnings
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy
import torch

from lampwork import _torch
from lampwork.capture.fake import Fake
from lampwork.capture.load import HEAP_TYPE, PLAIN_TYPES, bound_owner, has_identity_hash, is_plain
from lampwork.capture.machine import UNBOUND, Enter, MachineGenerator
from lampwork.capture.machine.iteration import InterpretedIterator, SequenceIterator
from lampwork.capture.machine.natives import Callback
from lampwork.capture.natives import (
    CONSTANT_ANSWERS,
    CONTEXT_ENTER,
    CONTEXT_EXIT,
    EFFECTS,
    ITERATORS,
    STATE_READERS,
    STATE_WRITERS,
)
from lampwork.capture.shadow import MISSING, Break, DictShadow, ListShadow, Pending
from lampwork.capture.tensors import OPERATOR_TYPES, is_tensor_function

_ITERATORS = frozenset({*ITERATORS, map, filter, MachineGenerator, InterpretedIterator, SequenceIterator})
#: Pure objects of C classes that hold plain data or loaded values only.
_DATA_TYPES = frozenset({
    *PLAIN_TYPES, torch.finfo, torch.iinfo, type({}.keys()), type({}.values()), type({}.items()), bytearray,
    types.CodeType,
})  # fmt: skip
_NEW_ALLOWED = frozenset({
    id(cls)
    for cls in (object, dict, list, tuple, set, frozenset, int, float, str, complex, bytes, collections.OrderedDict,
                collections.deque, collections.defaultdict, types.SimpleNamespace, property, staticmethod, classmethod,
                functools.partial)
})  # fmt: skip
_IDENTITY_METHODS = frozenset({
    object.__init__, object.__init_subclass__, object.__hash__, object.__eq__, object.__ne__, object.__new__,
    object.__subclasshook__,
})  # fmt: skip
#: The program cannot be followed through these: they reach frames, other threads or the outside world.
_REFUSED = {
    globals: "globals()", eval: "eval()", exec: "exec()", compile: "compile()", sys._getframe: "sys._getframe()",
    warnings.warn: "warnings.warn()", _thread.start_new_thread: "starting a thread", inspect.currentframe: "inspect.currentframe()",
    print: "print()", open: "open()", input: "input()",
}  # fmt: skip


class NativeCalls:
    loader: Any
    machine: Any
    guards: Any
    sources: Any
    intrinsics: dict[Any, Any]
    _function_kinds: dict[int, tuple[Any, str]]

    def install_natives(self) -> None:
        """Registers what the host answers in place of natives."""
        self._function_kinds = {}
        self.entered: list[Any] = []
        self.autocast_nesting = 0
        #: Objects whose `id()` was taken: which of them are the same is guarded at the end.
        self.identified: dict[int, Any] = {}
        add = self.add_intrinsic  # type: ignore[attr-defined]
        add(type, _type)
        add(isinstance, _isinstance)
        for native, text in _REFUSED.items():
            add(native, _refuse(text))
        for native in (torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling, torch._utils.is_compiling):
            add(native, lambda world: True)
        add(torch.compiler.is_exporting, lambda world: False)
        add(torch.jit.is_scripting, lambda world: False)
        add(torch.jit.is_tracing, lambda world: False)
        add(torch._jit_internal.is_scripting, lambda world: False)
        for native in (map, filter, functools.reduce):
            add(native, _calls_first(native))
        for native in (sorted, min, max):
            add(native, _keyed(native))
        add(list.sort, _sort)
        add(inspect.signature, _signature)
        substitute = self.add_substitute  # type: ignore[attr-defined]
        substitute(any, _any)
        substitute(all, _all)
        substitute(itertools.accumulate, _accumulate)
        substitute(itertools.starmap, _starmap)
        substitute(itertools.takewhile, _takewhile)
        substitute(itertools.dropwhile, _dropwhile)
        substitute(itertools.filterfalse, _filterfalse)
        add(hash, _hash)
        add(id, _id)
        add(object.__reduce_ex__, _reduce)
        add(torch._C._len_torch_dispatch_stack, lambda world: max(torch._C._len_torch_dispatch_stack() - 1, 0))
        add(torch.autograd.Function.apply.__func__, _apply_function)
        self.intrinsics.pop(any, None)
        self.intrinsics.pop(all, None)
        for level in ("debug", "info", "warning", "error", "log", "critical", "exception"):
            add(getattr(logging.Logger, level), _log)
        add(dict.get, _dict_get)

    def leave_contexts(self) -> None:
        """Leaves what the program had entered in C when it was stopped."""
        for context in reversed(self.entered):
            context.__exit__(None, None, None)
        self.entered.clear()
        while self.autocast_nesting > 0:
            self.autocast_nesting -= 1
            torch.autocast_decrement_nesting()

    # -- calls

    def call(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        kind = type(function)
        if kind is FunctionType:
            rule = self.function_rule(function)
            if rule == "tensor":
                if self.are_data(args, kwargs):
                    return function(*args, **kwargs)
            elif rule == "compiled":
                return self.call(self.attribute(function, "__wrapped__"), args, kwargs)  # type: ignore[attr-defined]
            elif rule == "allowed":
                return self.call_whole(function, args, kwargs)
            elif rule == "constant result":
                return self.call_constant(function, args, kwargs)
            elif rule == "disabled":
                raise Break("disabled", f"{function.__qualname__} is marked as not to be compiled")
            elif rule == "state":
                self.read_state(STATE_READERS[function])
                return function(*args, **kwargs)
            elif rule == "constant":
                return function(*args, **kwargs)
        elif kind.__flags__ & HEAP_TYPE and isinstance(function, torch.nn.Module):
            answer = self.call_module(function, args, kwargs)  # type: ignore[attr-defined]
            if answer is not UNBOUND:
                return answer
        elif kind in OPERATOR_TYPES:
            return self.call_tensor(function, args, kwargs)
        return super().call(function, args, kwargs)  # type: ignore[misc]

    def call_attribute(self, attribute: Any, obj: Any, args: tuple) -> Any:
        if type(attribute) is FunctionType:
            return self.call(attribute, (obj, *args), {})
        return super().call_attribute(attribute, obj, args)  # type: ignore[misc]

    def function_rule(self, function: FunctionType) -> str:
        """How a Python function is called: "tensor" (natively, on fakes), "state", "constant", "disabled" or "" (interpreted)."""
        known = self._function_kinds.get(id(function))
        if known is None:
            if function in self.intrinsics:
                rule = ""
            elif is_tensor_function(function):
                rule = "tensor"
            elif function in STATE_READERS:
                rule = "state"
            elif function in CONSTANT_ANSWERS:
                rule = "constant"
            elif "__lampwork__" in function.__dict__:
                rule = "compiled"
            elif function.__dict__.get("_torchdynamo_disable"):
                rule = "disabled"
            elif function.__dict__.get("_dynamo_marked_constant"):
                rule = "constant result"
            elif _torch.allowed_in_graph(function):
                rule = "allowed"
            else:
                rule = ""
            known = self._function_kinds[id(function)] = (function, rule)
        return known[1]

    def call_whole(self, function: FunctionType, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A function marked `allow_in_graph`: run natively on fakes, whatever Python it is made of."""
        if not self.are_data(args, kwargs):
            raise Break("tensor-argument", f"{function.__qualname__}, which is marked allow_in_graph, is called with "
                        f"{self.describe_arguments(args, kwargs)}")  # fmt: skip
        result = function(*args, **kwargs)
        if not self.is_data(result):
            raise Break("tensor-argument", f"{function.__qualname__}, which is marked allow_in_graph, returns an object")
        return result

    def call_constant(self, function: FunctionType, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A function marked `assume_constant_result`: run once, now; the user vouches for its result."""
        if not all(map(self.is_plain_data, (*args, *kwargs.values()))):
            raise Break("native-argument", f"{function.__qualname__}, marked as constant, is called with objects")
        with self.recorder._paused():  # type: ignore[attr-defined]
            result = function(*args, **kwargs)
        if not is_plain(result):
            raise Break("native-argument", f"{function.__qualname__}, marked as constant, returns an object")
        return result

    def should_interpret(self, function: FunctionType) -> bool:
        return True

    def read_state(self, name: str) -> None:
        """Guards process state by name, once."""
        source = self.sources.state(name)
        if name not in self.initial_state:  # type: ignore[attr-defined]
            self.guards.equals(source, _torch.STATE[name]())
        else:
            self.guards.equals(source, self.initial_state[name])  # type: ignore[attr-defined]

    def call_native(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A callable implemented in C, by its effect class. Raises `Break` for one that is in no table."""
        kind = type(function)
        if kind is BuiltinFunctionType:
            owner = bound_owner(function)
            if owner is not None:
                return self._call_method(function, owner, args, kwargs)
        if is_tensor_function(function):
            return self.call_tensor(function, args, kwargs)
        effect = EFFECTS.get(function) if _hashable(function) else None
        if effect is not None:
            return self._perform(function, effect, args, kwargs)
        return self._call_other(function, args, kwargs)

    def call_tensor(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        if not self.are_data(args, kwargs):
            raise Break(
                "tensor-argument",
                f"{_name(function)} is called with {self.describe_arguments(args, kwargs)}",
            )
        return function(*args, **kwargs)

    def _call_method(self, function: Any, owner: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A C method bound to its object."""
        if isinstance(owner, torch.Tensor):
            if is_tensor_function(function):
                return self.call_tensor(function, args, kwargs)
            raise unknown(function)
        descriptor = None
        for cls in type(owner).__mro__:
            candidate = cls.__dict__.get(function.__name__)
            # A Python class may override the method that `super()` found.
            if type(candidate) in _C_METHODS and candidate.__get__(owner, type(owner)) == function:
                descriptor = candidate
                break
        if descriptor is not None and descriptor in self.intrinsics:
            return self.intrinsics[descriptor](self, owner, *args, **kwargs)
        effect = EFFECTS.get(descriptor) if descriptor is not None and _hashable(descriptor) else None
        if effect is None:
            return self._call_other(function, args, kwargs)
        return self._perform(descriptor, effect, (owner, *args), kwargs)

    def _perform(self, function: Any, effect: str, args: tuple, kwargs: dict[str, Any]) -> Any:
        loader = self.loader
        if args and id(args[0]) in loader.unsettled and effect in ("method", "keyed", "compares"):
            special = SHADOW_METHODS.get(function)
            if special is not None:
                answer = special(self, loader.unsettled[id(args[0])], *args[1:], **kwargs)
                if answer is not UNBOUND:
                    return answer
        for value in args:
            self.touch(value)  # type: ignore[attr-defined]
        for value in kwargs.values():
            self.touch(value)  # type: ignore[attr-defined]
        if effect == "data":
            args = tuple([self.materialise(value) for value in args])
            if not self.are_data(args, kwargs):
                if type(function) is types.WrapperDescriptorType and len(args) == 2 and self.is_data(args[0]):
                    # `5 .__add__(point)`: numbers and strings leave operands of other classes to the other side.
                    if not isinstance(args[1], (int, float, complex, str, bytes)):
                        return NotImplemented
                raise Break(
                    "native-argument", f"{_name(function)} is called with {self.describe_arguments(args, kwargs)}"
                )
        elif effect == "keyed":
            if len(args) > 1 and getattr(function, "__name__", "") not in _TAKES_ITERABLE:
                self.check_key(args[0] if isinstance(args[0], (dict, set)) else {}, args[1])  # type: ignore[attr-defined]
        elif effect == "compares":
            if not all(self.is_plain_data(value) or self._all_identity(value) for value in args):
                raise Break("comparison", f"{_name(function)} compares objects or tensors")
        return function(*args, **kwargs)

    def _all_identity(self, value: Any) -> bool:
        if isinstance(value, (list, tuple, set, frozenset, collections.deque)):
            return all(has_identity_hash(each) and not isinstance(each, torch.Tensor) for each in value)
        return has_identity_hash(value) and not isinstance(value, torch.Tensor)

    def materialise(self, value: Any) -> Any:
        """An iterator's remaining elements as a list; anything else unchanged."""
        return self.collect(value) if type(value) in _ITERATORS else value  # type: ignore[attr-defined]

    def _call_other(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        if not _hashable(function):
            raise unknown(function)
        if function in STATE_READERS:
            self.read_state(STATE_READERS[function])
            return function(*args, **kwargs)
        if function in STATE_WRITERS:
            self.read_state(STATE_WRITERS[function])
            if function is torch.autocast_increment_nesting:
                self.autocast_nesting += 1
            elif function is torch.autocast_decrement_nesting:
                self.autocast_nesting -= 1
            return function(*args, **kwargs)
        if function in CONSTANT_ANSWERS:
            return function(*args, **kwargs)
        if isinstance(function, numpy.ufunc):
            return self._perform(function, "data", args, kwargs)
        if function in CONTEXT_ENTER:
            self.entered.append(args[0])
            return function(*args, **kwargs)
        if function in CONTEXT_EXIT:
            self.entered.remove(args[0])
            return function(*args, **kwargs)
        if function in _IDENTITY_METHODS:
            return function(*args, **kwargs)
        if isinstance(function, type):
            return self._instantiate_native(function, args, kwargs)
        if type(function) is BuiltinFunctionType and isinstance(function.__self__, type):
            if function.__name__ in ("__instancecheck__", "__subclasscheck__", "mro", "__prepare__"):
                return function(*args, **kwargs)
            if function.__name__ == "__new__" and id(function.__self__) in _NEW_ALLOWED:
                for value in args:
                    self.touch(value)  # type: ignore[attr-defined]
                return function(*args, **kwargs)
        if type(function) is functools._lru_cache_wrapper:
            return self._call_cached(function, args, kwargs)
        if type(function) is types.MethodWrapperType:
            return self._call_wrapper(function, args, kwargs)
        if isinstance(function, (Callback,)):
            return self.machine.call(function.function, args, kwargs)
        if type(function).__name__ in _CALLABLE_GETTERS and not kwargs and len(args) == 1:
            return self._call_getter(function, args[0])
        raise unknown(function)

    def _call_wrapper(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        raise unknown(function)

    def _call_getter(self, function: Any, value: Any) -> Any:
        """`operator.attrgetter("a", "b")(x)`, `operator.itemgetter(0)(x)`: done through the machine."""
        _, parts = function.__reduce__()
        results = []
        for part in parts:
            if type(function).__name__ == "attrgetter":
                current = value
                for name in part.split("."):
                    current = self.machine.complete(self.load_attr(current, name))  # type: ignore[attr-defined]
            else:
                current = self.machine.complete(self.get_item(value, part))  # type: ignore[attr-defined]
            results.append(current)
        return results[0] if len(results) == 1 else tuple(results)

    def _call_cached(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A function behind `functools.lru_cache`: its answer is fixed by its arguments, as in eager."""
        if self.is_plain_data(args) and all(self.is_plain_data(value) for value in kwargs.values()):
            with self.recorder._paused():  # type: ignore[attr-defined]
                result = function(*args, **kwargs)
            if is_plain(result) or isinstance(result, (type, FunctionType, ModuleType)):
                return result
        inner = function.__wrapped__
        raise Break("cached-function", f"{inner.__qualname__} caches its results and takes or returns objects")

    def _instantiate_native(self, cls: type, args: tuple, kwargs: dict[str, Any]) -> Any:
        """A class whose `__new__` and `__init__` are both implemented in C."""
        new = cls.__new__
        owner = getattr(new, "__self__", None)
        if cls is torch._C._InferenceMode:
            self.read_state("inference_mode")
            return cls(*args, **kwargs)
        if id(owner) not in _NEW_ALLOWED and not issubclass(cls, BaseException):
            raise unknown(cls)
        if issubclass(cls, collections.OrderedDict) and (args or kwargs):
            if type(cls.__setitem__) is FunctionType or type(cls.update) is FunctionType:
                raise Break("native-class", f"{cls.__qualname__} fills itself from native code")
        for value in args:
            self.touch(value)  # type: ignore[attr-defined]
        if issubclass(cls, (int, float, str, complex, bytes)) and not self.are_data(args, kwargs):
            raise Break("native-argument", f"{cls.__qualname__} is made of {self.describe_arguments(args, kwargs)}")
        return cls(*args, **kwargs)

    def call_new(self, new: Any, cls: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        owner = getattr(new, "__self__", None)
        if issubclass(cls, torch.Tensor):
            raise Break("tensor-subclass", f"a tensor of class {cls.__qualname__} is made")
        if id(owner) not in _NEW_ALLOWED and not (isinstance(owner, type) and issubclass(owner, BaseException)):
            raise unknown(cls)
        for value in args:
            self.touch(value)  # type: ignore[attr-defined]
        return new(cls, *args, **kwargs)

    def instantiate(self, cls: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        if cls is torch.nn.Parameter or cls is torch.nn.Buffer:
            raise Break("tensor-subclass", f"a {cls.__name__} is made", "Make parameters outside the compiled function.")
        found, initialise = self.class_lookup(cls, "__init__")  # type: ignore[attr-defined]
        if type(initialise) is not FunctionType and initialise is not object.__init__:
            for value in args:
                self.touch(value)  # type: ignore[attr-defined]
        return super().instantiate(cls, args, kwargs)  # type: ignore[misc]

    # -- what values hold

    def are_data(self, args: tuple, kwargs: dict[str, Any]) -> bool:
        return all(map(self.is_data, args)) and all(map(self.is_data, kwargs.values()))

    def is_data(self, value: Any) -> bool:
        """Plain data, tensors, and containers of them; loads containers from outside."""
        kind = type(value)
        if kind is Fake or kind in _DATA_TYPES:
            return kind is not slice or (
                self.is_data(value.start) and self.is_data(value.stop) and self.is_data(value.step)
            )
        if id(value) in self.loader.unsettled:
            self.loader.settle(value)
        if kind is list or kind is tuple or isinstance(value, (tuple, set, frozenset, collections.deque)):
            return all(map(self.is_data, value))
        if kind is dict or kind is collections.OrderedDict:
            return all(map(self.is_data, value.values())) and all(map(self.is_data, value))
        if isinstance(value, type):
            return kind.__repr__ is type.__repr__
        return is_plain(value) or kind.__module__ == "re" or isinstance(value, numpy.generic) or (
            isinstance(value, BaseException) and not kind.__flags__ & HEAP_TYPE and all(map(self.is_data, value.args))
        )

    def is_plain_data(self, value: Any) -> bool:
        """As `is_data`, without tensors: comparing and hashing it natively is right."""
        kind = type(value)
        if kind in PLAIN_TYPES:
            return True
        if id(value) in self.loader.unsettled:
            self.loader.settle(value)
        if kind in (list, tuple, set, frozenset, collections.deque):
            return all(map(self.is_plain_data, value))
        if kind is dict or kind is collections.OrderedDict:
            return all(map(self.is_plain_data, value.values())) and all(map(self.is_plain_data, value))
        return is_plain(value) or isinstance(value, (type, FunctionType)) and has_identity_hash(value)

    def describe_arguments(self, args: tuple, kwargs: dict[str, Any]) -> str:
        bad = [value for value in (*args, *kwargs.values()) if not self.is_data(value)]
        names = sorted({f"a {type(value).__module__}.{type(value).__qualname__}" for value in bad})
        return ", ".join(names) or "no arguments"


_C_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
_CALLABLE_GETTERS = frozenset({"attrgetter", "itemgetter"})
_TAKES_ITERABLE = frozenset({
    "update", "fromkeys", "union", "intersection", "difference", "symmetric_difference", "issubset", "issuperset",
    "isdisjoint", "intersection_update", "difference_update", "symmetric_difference_update", "__init__", "__or__",
    "__ior__", "__ror__", "__and__", "__sub__", "__xor__", "__rand__", "__rsub__", "__rxor__", "__iand__", "__isub__",
    "__ixor__", "__eq__", "__ne__", "__le__", "__lt__", "__ge__", "__gt__",
})  # fmt: skip


def _hashable(function: Any) -> bool:
    try:
        hash(function)
    except TypeError:
        return False
    return True


def _name(function: Any) -> str:
    module = getattr(function, "__module__", None)
    owner = getattr(function, "__objclass__", None)
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or repr(type(function))
    if owner is not None:
        return f"{owner.__qualname__}.{getattr(function, '__name__', name)}"
    return f"{module}.{name}" if module and module != "builtins" else str(name)


def unknown(function: Any) -> Break:
    return Break(
        "unknown-native",
        f"the native function {_name(function)} is called, and what it does to its arguments is not known",
        "Call it outside the compiled function, or report it so that it can be added to the table.",
    )


# ---------------------------------------------------------------------------------------------------------------------
# Natives answered by the host


def _refuse(text: str) -> Any:
    def answer(world: Any, *args: Any, **kwargs: Any) -> Any:
        raise Break("native-call", f"{text} is called", "Do it outside the compiled function.")

    return answer


def _type(world: Any, *args: Any, **kwargs: Any) -> Any:
    if len(args) == 1 and not kwargs:
        return world.type_of(args[0])
    if len(args) == 3:
        _, bases, namespace = args
        for base in bases:
            if type(getattr(base.__init_subclass__, "__func__", None)) is FunctionType:
                raise Break("class-made", f"a subclass of {base.__qualname__}, which has an __init_subclass__, is made")
        for value in dict(namespace).values():
            if type(getattr(type(value), "__set_name__", None)) is FunctionType:
                raise Break("class-made", f"a class is made with a {type(value).__qualname__} in it")
    return type(*args, **kwargs)


def _isinstance(world: Any, *args: Any) -> Any:
    if len(args) != 2:
        return isinstance(*args)
    subject, classes = args
    if id(classes) in world.loader.unsettled:
        world.touch(classes)
    return _instance_check(world, subject, classes)


_NATIVE_METACLASSES = frozenset({type, type(torch.Tensor), type(torch.nn.Parameter), type(torch.dtype)})


def _instance_check(world: Any, subject: Any, classes: Any) -> bool:
    kind = type(classes)
    if kind is tuple:
        return any(_instance_check(world, subject, each) for each in classes)
    if kind is types.UnionType:
        return any(_instance_check(world, subject, each) for each in classes.__args__)
    if kind in _NATIVE_METACLASSES or type(subject) is Fake:
        return isinstance(subject, classes)
    from lampwork.capture.machine.natives import _check

    return _check(world, "__instancecheck__", isinstance, subject, classes)


def _wrap(world: Any, function: Any) -> Any:
    """A function that native code may call: through the machine unless it is None or known to be pure."""
    if function is None or (_hashable(function) and EFFECTS.get(function) in ("holds", "identity") and function is not type):
        return function
    return Callback(world, function)


def _calls_first(native: Any) -> Any:
    def answer(world: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) >= 2 and not kwargs:
            args = (Callback(world, args[0]) if args[0] is not None else None,
                    *(world.native_iterable(value) for value in args[1:]))  # fmt: skip
            if native is filter and args[0] is None:
                args = (Callback(world, bool), args[1])
        return native(*args, **kwargs)

    return answer


def _keyed(native: Any) -> Any:
    def answer(world: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1:
            args = (world.collect(args[0]),)
        key = kwargs.get("key")
        if key is None:
            return world.call_native(native, args, kwargs)
        default = kwargs.get("default", MISSING)
        values = args[0] if len(args) == 1 else list(args)
        keys = [world.machine.call(key, (value,)) for value in values]
        if not world.is_data(keys):
            raise Break("comparison", f"{native.__name__} orders objects")
        if native is sorted:
            order = sorted(range(len(values)), key=keys.__getitem__, reverse=bool(kwargs.get("reverse", False)))
            return [values[position] for position in order]
        if not values and default is not MISSING:
            return default
        return values[native(range(len(values)), key=keys.__getitem__)]

    return answer


def _sort(world: Any, target: Any, **kwargs: Any) -> None:
    world.touch(target)
    ordered = world.machine.call(sorted, (target,), kwargs)
    list.__setitem__(target, slice(None), ordered)


def _signature(world: Any, function: Any, **kwargs: Any) -> Any:
    """`inspect.signature` of a Python function or method: decided by its code, defaults and `__wrapped__` chain."""
    target = function
    while True:
        target = target.__func__ if type(target) is MethodType else target
        if type(target) is not FunctionType or kwargs:
            raise Break("native-argument", f"inspect.signature is called with a {type(function).__name__}")
        world.function_parts(target)
        for name in ("__signature__", "__text_signature__"):
            if world.attribute_or(target, name, MISSING) is not MISSING:
                raise Break("native-argument", "inspect.signature of a function that carries a signature of its own")
        wrapped = world.attribute_or(target, "__wrapped__", MISSING)
        if wrapped is MISSING:
            break
        target = wrapped
    if not is_plain((target.__defaults__ or ())) or not all(map(is_plain, (target.__kwdefaults__ or {}).values())):
        raise Break("native-argument", "inspect.signature of a function whose defaults are objects")
    return inspect.signature(function)


def _any(iterable: Any) -> bool:
    for element in iterable:
        if element:
            return True
    return False


def _all(iterable: Any) -> bool:
    for element in iterable:
        if not element:
            return False
    return True


def _accumulate(iterable: Any, func: Any = None, *, initial: Any = None) -> Any:
    iterator = iter(iterable)
    total = initial
    if initial is None:
        try:
            total = next(iterator)
        except StopIteration:
            return
    yield total
    for element in iterator:
        total = total + element if func is None else func(total, element)
        yield total


def _starmap(function: Any, iterable: Any) -> Any:
    for args in iterable:
        yield function(*args)


def _takewhile(predicate: Any, iterable: Any) -> Any:
    for element in iterable:
        if not predicate(element):
            break
        yield element


def _dropwhile(predicate: Any, iterable: Any) -> Any:
    iterator = iter(iterable)
    for element in iterator:
        if not predicate(element):
            yield element
            break
    yield from iterator


def _filterfalse(predicate: Any, iterable: Any) -> Any:
    for element in iterable:
        if not (element if predicate is None else predicate(element)):
            yield element


def _apply_function(world: Any, cls: Any, *args: Any, **kwargs: Any) -> Any:
    """`Function.apply` where nothing is differentiated: the forward alone, on a context of Python's."""
    if torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in args):
        raise Break("autograd-function", f"the custom autograd function {cls.__qualname__} is applied to tensors that "
                    "require grad", "Run inference under torch.no_grad().")  # fmt: skip
    context = torch.autograd.function.FunctionCtx()
    context.needs_input_grad = tuple(False for _ in args)  # type: ignore[attr-defined]
    call = world.machine.call
    forward = world.attribute(cls, "forward")
    setup = world.attribute(cls, "setup_context")
    enabled = torch.is_grad_enabled()
    torch._C._set_grad_enabled(False)
    try:
        if setup is torch.autograd.Function.setup_context:
            return call(forward, (context, *args), kwargs)
        result = call(forward, args, kwargs)
        call(setup, (context, args, result))
        return result
    finally:
        torch._C._set_grad_enabled(enabled)


class IdentityNumber(int):
    """What `id(x)` gives: good as a key and for comparison. It is another number in the next call, so that anything else
    breaks the graph."""

    def _refuse(self, *args: Any) -> Any:
        raise Break("identity-number", "id() of an object is computed with")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __rmod__ = _refuse
    __floordiv__ = __truediv__ = __lt__ = __le__ = __gt__ = __ge__ = __and__ = __rand__ = _refuse
    __or__ = __ror__ = __xor__ = __rxor__ = __lshift__ = __rshift__ = __neg__ = __index__ = _refuse
    __str__ = __repr__ = __format__ = _refuse
    __hash__ = int.__hash__
    __eq__ = int.__eq__


def _reduce(world: Any, obj: Any, protocol: Any = 0) -> Any:
    """`object.__reduce_ex__(4)` of an instance of a Python class: what `copy.copy` and `copy.deepcopy` are made of."""
    cls = type(obj)
    found, reduce = world.class_lookup(cls, "__reduce__")
    if found and reduce is not object.__reduce__:
        return world.call_attribute(reduce, obj, ())
    slots = any("__slots__" in base.__dict__ and base.__dict__["__slots__"] for base in cls.__mro__)
    if type(protocol) is not int or protocol < 2 or slots or not cls.__flags__ & HEAP_TYPE or isinstance(obj, torch.Tensor):
        raise Break("native-argument", f"a {cls.__qualname__} is copied or pickled")
    for name in ("__getnewargs_ex__", "__getnewargs__"):
        if world.class_lookup(cls, name)[0]:
            raise Break("native-argument", f"a {cls.__qualname__} with a {name} is copied or pickled")
    getstate = world.python_special(obj, "__getstate__")
    if getstate is UNBOUND:
        state = world.attribute_or(obj, "__dict__", None)
        world.touch(state)
    else:
        state = world.call_special(obj, getstate)
    call = world.machine.call
    elements = world.get_iter(obj) if isinstance(obj, list) else None
    pairs = world.get_iter(call(world.attribute(obj, "items"))) if isinstance(obj, dict) else None
    return copyreg.__newobj__, (cls,), state or None, elements, pairs  # type: ignore[attr-defined]


def _id(world: Any, *args: Any) -> Any:
    if len(args) != 1:
        return id(*args)
    world.identified[id(args[0])] = args[0]
    return IdentityNumber(id(args[0]))


def _hash(world: Any, *args: Any) -> Any:
    """Hashes of numbers are the same in every process; others depend on addresses or the process's seed."""
    if len(args) == 1:
        method = world.python_special(args[0], "__hash__")
        if method is not UNBOUND and method is not None:
            return world.call_attribute(method, args[0], ())
        if type(args[0]) not in (int, float, bool, complex):
            raise Break("hash", f"hash() of a {type(args[0]).__name__} is used")
    return hash(*args)


def _log(world: Any, logger: Any, *args: Any, **kwargs: Any) -> None:
    """A log call whose level is off does nothing; one that would print is not for a graph."""
    raw = logger
    function = sys._getframe().f_code
    level = kwargs.get("level")
    del function
    names = {"debug": 10, "info": 20}
    for name, value in names.items():
        if not raw.isEnabledFor(value) and level is None and _called_as(world, name):
            return
    raise Break("logging", "a message is logged", "Log outside the compiled function.")


def _called_as(world: Any, name: str) -> bool:
    frame = world.machine.frames[-1] if world.machine.frames else None
    return frame is not None and name in frame.code.raw.co_names


def _dict_get(world: Any, mapping: Any, *args: Any) -> Any:
    shadow = world.loader.unsettled.get(id(mapping))
    if shadow is not None and 1 <= len(args) <= 2:
        value = world.loader.dict_read(shadow, args[0])
        return (args[1] if len(args) == 2 else None) if value is MISSING else value
    if args:
        world.check_key(mapping, args[0])
    return dict.get(mapping, *args)


# ---------------------------------------------------------------------------------------------------------------------
# Methods of containers from outside that need not look at everything


def _shadow_getitem(world: Any, shadow: Any, key: Any) -> Any:
    if type(shadow) is DictShadow:
        value = world.loader.dict_read(shadow, key)
        if value is MISSING:
            if isinstance(shadow.copy, collections.defaultdict):
                return UNBOUND
            raise KeyError(key)
        return value
    if type(shadow) is ListShadow and type(key) is int:
        return world.loader.list_read(shadow, key)
    return UNBOUND


def _shadow_setitem(world: Any, shadow: Any, key: Any, value: Any) -> Any:
    if type(shadow) is DictShadow:
        world.loader.dict_write(shadow, key, value)
        return None
    return UNBOUND


def _shadow_delitem(world: Any, shadow: Any, key: Any) -> Any:
    if type(shadow) is DictShadow:
        if not world.loader.dict_delete(shadow, key):
            raise KeyError(key)
        return None
    return UNBOUND


def _shadow_contains(world: Any, shadow: Any, key: Any) -> Any:
    return world.loader.dict_has(shadow, key) if type(shadow) is DictShadow else UNBOUND


def _shadow_pop(world: Any, shadow: Any, *args: Any) -> Any:
    if type(shadow) is not DictShadow or not 1 <= len(args) <= 2:
        return UNBOUND
    value = world.loader.dict_read(shadow, args[0])
    if value is MISSING:
        if len(args) == 2:
            return args[1]
        raise KeyError(args[0])
    world.loader.dict_delete(shadow, args[0])
    return value


def _shadow_setdefault(world: Any, shadow: Any, key: Any, default: Any = None) -> Any:
    value = world.loader.dict_read(shadow, key)
    if value is MISSING:
        world.loader.dict_write(shadow, key, default)
        return default
    return value


def _shadow_update(world: Any, shadow: Any, *args: Any, **kwargs: Any) -> Any:
    if type(shadow) is not DictShadow or len(args) > 1 or (args and not isinstance(args[0], dict)):
        return UNBOUND
    for source in (*args, kwargs):
        world.touch(source)
        for key, value in source.items():
            world.loader.dict_write(shadow, key, value)
    return None


def _shadow_keys(world: Any, shadow: Any) -> Any:
    world.loader.dict_keys(shadow)
    return dict.keys(shadow.copy) if type(shadow.copy) is dict else shadow.copy.keys()


def _shadow_append(world: Any, shadow: Any, value: Any) -> Any:
    if type(shadow) is ListShadow and type(shadow.copy) is list:
        world.loader.list_append(shadow, [value])
        return None
    return UNBOUND


def _shadow_extend(world: Any, shadow: Any, values: Any) -> Any:
    if type(shadow) is ListShadow and type(shadow.copy) is list and values is not shadow.copy:
        world.loader.list_append(shadow, world.collect(values))
        return None
    return UNBOUND


def _shadow_len(world: Any, shadow: Any) -> Any:
    return world._shadow_length(shadow)


SHADOW_METHODS: dict[Any, Any] = {
    dict.__getitem__: _shadow_getitem, dict.__setitem__: _shadow_setitem, dict.__delitem__: _shadow_delitem,
    collections.OrderedDict.__setitem__: _shadow_setitem, collections.OrderedDict.__delitem__: _shadow_delitem,
    dict.__contains__: _shadow_contains, dict.pop: _shadow_pop, dict.setdefault: _shadow_setdefault,
    collections.OrderedDict.pop: _shadow_pop, collections.OrderedDict.setdefault: _shadow_setdefault,
    dict.update: _shadow_update, collections.OrderedDict.update: _shadow_update, dict.keys: _shadow_keys,
    list.append: _shadow_append, list.extend: _shadow_extend, list.__getitem__: _shadow_getitem,
    list.__len__: _shadow_len, dict.__len__: _shadow_len, 
}  # fmt: skip

__all__ = ["NativeCalls", "Enter", "MethodType", "Pending"]
