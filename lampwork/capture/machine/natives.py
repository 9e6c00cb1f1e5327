"""Built-in functions whose answer depends on the machine, or which call back into Python code.

Each is a host function `answer(world, *args, **kwargs)` that gives a value or an `Enter`.  Two rules hold for all of
them: Python-level code they run is interpreted, and for every other argument the native function answers itself,
with its own errors. The answers for iteration are in `native_iteration.py`, those about frames in
`native_namespaces.py`: this module has the tables, attributes, classes and conversions.
"""

from __future__ import annotations

import abc
import functools
import inspect
import operator
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any

from .attributes import NATIVE_KINDS, find_in_class
from .generators import MachineGenerator
from .iteration import is_own_iterator
from .operators import BUILTIN
from .private import keep_builtins
from .values import UNBOUND, is_a

keep_builtins(globals())

_BUILTIN = types.BuiltinFunctionType

INTRINSICS: dict[Any, Any] = {}
CLASS_INTRINSICS: dict[tuple[type, str], Any] = {}


@dataclass(frozen=True, slots=True)
class InPython:
    """The answer for a native that a Python function is interpreted in its place; tracebacks do not show it."""

    function: Any


#: What interpreted calls of a native do instead: a host function `answer(world, *args, **kwargs)`, or Python code.
Answer = Callable[..., Any] | InPython


class Natives:
    """The natives that a world has answers for. Worlds share it, and nothing changes it."""

    def __init__(self, table: Mapping[Any, Answer]) -> None:
        """The machine's own answers, but for the natives in `table`."""
        from ..bytecode.decode import decode

        self.intrinsics: dict[Any, Any] = {**INTRINSICS, **table}
        self.substitutes: dict[Any, FunctionType] = {}
        for native, answer in table.items():
            if isinstance(answer, InPython):
                del self.intrinsics[native]
                self.substitutes[native] = answer.function
                code = decode(answer.function.__code__)
                code.hidden = True
                code.is_native = False
        #: Names of methods that may have an answer: a quick test before the class is searched.
        self.names = {native.__name__ for native in (*self.intrinsics, *self.substitutes)}
        self.names.update(name for _, name in CLASS_INTRINSICS)


def answers(*natives: Any) -> Any:
    def register(function: Any) -> Any:
        for native in natives:
            takes_keywords = function.__code__.co_flags & inspect.CO_VARKEYWORDS
            INTRINSICS[native] = function if takes_keywords else _positional(native, function)
        return function

    return register


def _positional(native: Any, function: Any) -> Any:
    """For a native that takes no keyword arguments: it words the error itself."""

    def answer(world: Any, *args: Any, **kwargs: Any) -> Any:
        return native(*args, **kwargs) if kwargs else function(world, *args)

    return answer


class Callback:
    """Lets native code call a Python function through the machine (`sorted(key=f)`)."""

    __slots__ = ("world", "function", "__weakref__")

    def __init__(self, world: Any, function: Any) -> None:
        self.world = world
        self.function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.world.machine.call(self.function, args, kwargs)

    def __reduce__(self) -> Any:
        return _same, (self.function,)


def _same(function: Any) -> Any:
    return function


def callback(world: Any, function: Any) -> Any:
    """The function itself if it is native, else a `Callback`."""
    kind = type(function)
    if kind is FunctionType or kind is MethodType or kind is functools.partial:
        return Callback(world, function)
    if kind in (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, type(None)):
        return function
    if is_a(function, type):
        return function if function in (int, float, str, bool) else Callback(world, function)
    if callable(function) and world.python_special(function, "__call__") is not UNBOUND:
        return Callback(world, function)
    return function


# ---------------------------------------------------------------------------------------------------------
# Attributes


@answers(getattr)
def _getattr(world: Any, *args: Any, **kwargs: Any) -> Any:
    if kwargs or not 2 <= len(args) <= 3 or not is_a(args[1], str):
        return getattr(*args, **kwargs)
    if len(args) == 2:
        return world.load_attr(args[0], str(args[1]))
    return world.attribute_or(args[0], str(args[1]), args[2])


@answers(hasattr)
def _hasattr(world: Any, *args: Any) -> Any:
    if len(args) != 2 or not is_a(args[1], str):
        return hasattr(*args)
    return world.attribute_or(args[0], str(args[1]), UNBOUND) is not UNBOUND


@answers(setattr)
def _setattr(world: Any, *args: Any) -> Any:
    if len(args) != 3 or not is_a(args[1], str):
        return setattr(*args)
    world.store_attr(args[0], sys.intern(str(args[1])), args[2])


@answers(delattr)
def _delattr(world: Any, *args: Any) -> Any:
    if len(args) != 2 or not is_a(args[1], str):
        return delattr(*args)
    world.delete_attr(args[0], str(args[1]))


def _default_load(load: str, native: Any) -> Any:
    def answer(world: Any, *args: Any) -> Any:
        if len(args) != 2 or not is_a(args[1], str):
            return native(*args)
        value = getattr(world, load)(args[0], args[1], type(args[0]))
        if value is UNBOUND:
            return native(*args)
        return value

    return answer


INTRINSICS[object.__getattribute__] = _default_load("generic_load", object.__getattribute__)
INTRINSICS[types.ModuleType.__getattribute__] = _default_load("module_load", types.ModuleType.__getattribute__)


@answers(type.__getattribute__)
def _type_getattribute(world: Any, *args: Any) -> Any:
    if len(args) != 2 or not is_a(args[0], type) or not is_a(args[1], str):
        return type.__getattribute__(*args)
    value = world.type_load(args[0], args[1], type(args[0]))
    return type.__getattribute__(*args) if value is UNBOUND else value


@answers(object.__setattr__)
def _object_setattr(world: Any, *args: Any) -> Any:
    if len(args) != 3 or not is_a(args[1], str) or is_a(args[0], type):
        return object.__setattr__(*args)
    if not world.store_through_descriptor(*args):
        world.instance_store(*args)


@answers(object.__delattr__)
def _object_delattr(world: Any, *args: Any) -> Any:
    if len(args) != 2 or not is_a(args[1], str) or is_a(args[0], type):
        return object.__delattr__(*args)
    if not world.delete_through_descriptor(*args):
        world.instance_delete(*args)


@answers(type.__setattr__)
def _type_setattr(world: Any, *args: Any) -> Any:
    if len(args) != 3 or not is_a(args[0], type) or not is_a(args[1], str):
        return type.__setattr__(*args)
    world.generic_type_store(*args)


@answers(type.__call__)
def _type_call(world: Any, *args: Any, **kwargs: Any) -> Any:
    if not args or not is_a(args[0], type):
        return type.__call__(*args, **kwargs)
    if args[0] is type and len(args) == 2 and not kwargs:
        return _type(world, args[1])
    return world.instantiate(args[0], args[1:], kwargs)


@answers(types.FunctionType.__call__)
def _function_call(world: Any, *args: Any, **kwargs: Any) -> Any:
    if not args or type(args[0]) is not FunctionType:
        return types.FunctionType.__call__(*args, **kwargs)
    return world.call(args[0], args[1:], kwargs)


@answers(MethodType.__call__)
def _method_call(world: Any, *args: Any, **kwargs: Any) -> Any:
    if not args or type(args[0]) is not MethodType:
        return MethodType.__call__(*args, **kwargs)
    return world.call(args[0], args[1:], kwargs)


@answers(property.__get__)
def _property_get(world: Any, *args: Any) -> Any:
    if len(args) < 2 or args[1] is None or type(args[0]) is not property or args[0].fget is None:
        return property.__get__(*args)
    return world.call(args[0].fget, (args[1],), {})


@answers(type)
def _type(world: Any, *args: Any, **kwargs: Any) -> Any:
    if len(args) == 1 and not kwargs:
        return types.GeneratorType if type(args[0]) is MachineGenerator else type(args[0])
    return in_user_globals(world, type, args, kwargs)


def in_user_globals(world: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls a native that looks at its caller's globals (to set a `__module__`) from a frame that has them."""
    frame = world.machine.user_frame()
    if frame is None or type(frame.globals) is not dict:
        return function(*args, **kwargs)
    return FunctionType(_forward.__code__, frame.globals)(function, args, kwargs)


def _forward(function: Any, args: Any, kwargs: Any) -> Any:
    return function(*args, **kwargs)


def _reads_globals(native: Any) -> None:
    INTRINSICS[native] = lambda world, *args, **kwargs: in_user_globals(world, native, args, kwargs)


for _name in ("TypeVar", "ParamSpec", "TypeVarTuple", "TypeAliasType"):
    if type(getattr(typing, _name, None)) is type and getattr(typing, _name).__new__.__class__ is _BUILTIN:
        _reads_globals(getattr(typing, _name))
_reads_globals(FunctionType)  # without `__builtins__` in its globals, a function gets its maker's
CLASS_INTRINSICS[(type, "__new__")] = lambda world, *args, **kwargs: in_user_globals(world, type.__new__, args, kwargs)


@answers(super)
def _super(world: Any, *args: Any) -> Any:
    if args:
        return super(*args)
    frame = world.machine.user_frame()
    raw = frame.code.raw
    if raw.co_argcount == 0:
        raise RuntimeError("super(): no arguments")
    first = frame.locals[0]
    if raw.co_varnames[0] in raw.co_cellvars and type(first) is types.CellType:
        first = world.load_cell(first)
    if first is UNBOUND:
        raise RuntimeError("super(): arg[0] deleted")
    if "__class__" not in raw.co_freevars:
        raise RuntimeError("super(): __class__ cell not found")
    cls = world.load_cell(frame.locals[frame.code.slots.index("__class__")])
    if cls is UNBOUND:
        raise RuntimeError("super(): empty __class__ cell")
    return super(cls, first)


@answers(isinstance)
def _isinstance(world: Any, *args: Any) -> Any:
    if len(args) == 2:
        return class_check(world, "__instancecheck__", isinstance, *args)
    return isinstance(*args)


@answers(issubclass)
def _issubclass(world: Any, *args: Any) -> Any:
    if len(args) == 2:
        return class_check(world, "__subclasscheck__", issubclass, *args)
    return issubclass(*args)


# Functions written in Python that CPython runs: thin covers of C code which looks at its calling frame.
NATIVE_FUNCTIONS: frozenset[Any] = frozenset((abc.ABCMeta.__instancecheck__, abc.ABCMeta.__subclasscheck__))


def class_check(world: Any, name: str, native: Any, subject: Any, cls: Any) -> bool:
    kind = type(cls)
    if kind is tuple:
        return any(class_check(world, name, native, subject, each) for each in cls)
    if kind is type or kind is abc.ABCMeta:
        return _derives(world, native, subject, cls)
    if native is isinstance and type(subject) is cls:
        return True
    method = world.python_special(cls, name)
    if method is UNBOUND or method is None or method in NATIVE_FUNCTIONS:
        return _derives(world, native, subject, cls)
    return world.truth(world.call_special(cls, method, subject))


def _derives(world: Any, native: Any, subject: Any, cls: Any) -> bool:
    """What `type` and `ABCMeta` answer. A `__class__` written in Python is interpreted."""
    if native is issubclass:
        world.note_bases(subject, cls)
        return issubclass(subject, cls)
    kind = type(subject)
    world.note_bases(kind, cls)
    if type(find_in_class(kind, "__class__")) in NATIVE_KINDS:
        return isinstance(subject, cls)
    told = world.attribute_or(subject, "__class__", kind)
    if not is_a(told, type) or not is_a(cls, type):
        return isinstance(subject, cls)  # by a `__bases__` of their own
    world.note_bases(told, cls)
    return issubclass(kind, cls) or issubclass(told, cls)


@answers(callable)
def _callable(world: Any, *args: Any) -> Any:
    if len(args) == 1:
        world.python_special(args[0], "__call__")  # looked up as everything else is
    return callable(*args)


# ---------------------------------------------------------------------------------------------------------
# Conversions that call one special method


def _unary(native: Any, name: str, check: Any) -> None:
    def answer(world: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and type(args[0]) not in BUILTIN:
            method = world.python_special(args[0], name)
            if method is not UNBOUND and method is not None:
                if check is None:
                    return world.call_attribute(method, args[0], ())
                return check(world.call_special(args[0], method))
        return world.call_native(native, args, kwargs)

    INTRINSICS[native] = answer


def _returned(name: str, kind: type) -> Any:
    def check(result: Any) -> Any:
        if not is_a(result, kind):
            raise TypeError(f"{name} returned non-string (type {type(result).__name__})")
        return result

    return check


def checked_hash(result: Any) -> int:
    if not is_a(result, int):
        raise TypeError("__hash__ method should return an integer")
    return result if -sys.maxsize - 1 <= result <= sys.maxsize and result != -1 else hash(result)


_unary(repr, "__repr__", _returned("__repr__", str))
_unary(hash, "__hash__", checked_hash)
_unary(abs, "__abs__", None)


@answers(len)
def _len(world: Any, *args: Any) -> Any:
    return world.length(*args) if len(args) == 1 else len(*args)


@answers(operator.length_hint)
def _length_hint(world: Any, *args: Any) -> Any:
    if len(args) > 2 or not args or (len(args) == 2 and type(args[1]) is not int):
        return operator.length_hint(*args)
    value, default = args[0], args[1] if len(args) == 2 else 0
    if world.special(value, "__len__") not in (UNBOUND, None):
        try:
            return world.length(value)
        except TypeError:
            pass
    method = world.special(value, "__length_hint__")
    if type(method) in NATIVE_KINDS or is_own_iterator(value):
        return operator.length_hint(value, default)
    if method is UNBOUND:
        return default
    try:
        hint = world.call_special(value, method)
    except TypeError:
        return default
    if hint is NotImplemented:
        return default
    if not is_a(hint, int):
        raise TypeError(f"__length_hint__ must be an integer, not {type(hint).__name__}")
    if hint < 0:
        raise ValueError("__length_hint__() should return >= 0")
    return hint


@answers(bool)
def _bool(world: Any, *args: Any, **kwargs: Any) -> Any:
    return world.truth(args[0]) if len(args) == 1 and not kwargs else bool(*args, **kwargs)


@answers(str)
def _str(world: Any, *args: Any, **kwargs: Any) -> Any:
    if len(args) == 1 and not kwargs and type(args[0]) not in BUILTIN:
        value = args[0]
        method = world.special(value, "__str__")
        if method is object.__str__:
            method = world.special(value, "__repr__")
            name = "__repr__"
        else:
            name = "__str__"
        if method is not UNBOUND and type(method) not in NATIVE_KINDS and method is not None:
            return _returned(name, str)(world.call_special(value, method))
    return world.call_native(str, args, kwargs)


@answers(format)
def _format(world: Any, *args: Any) -> Any:
    if 1 <= len(args) <= 2 and type(args[0]) not in BUILTIN:
        value, spec = args[0], args[1] if len(args) == 2 else ""
        method = world.special(value, "__format__")
        if method is object.__format__ and spec == "":
            return _str(world, value)
        if method is not UNBOUND and type(method) not in NATIVE_KINDS and method is not None:
            result = world.call_special(value, method, spec)
            if not is_a(result, str):
                raise TypeError(f"__format__ must return a str, not {type(result).__name__}")
            return result
    return world.call_native(format, args, {})
