"""Objects of classes written in Python, whose special methods may be the program's: only the machine runs those."""

from __future__ import annotations

import functools
import operator
import types
from typing import Any

import torch

from lampwork.capture.outside.open_text import OpenText
from lampwork.capture.outside.plain import HEAP_TYPE
from lampwork.capture.values.scalar import Scalar
from lampwork.capture.values.sizes import SYMBOLIC
from lampwork.capture.values.unknown_array import UnknownArray
from lampwork.capture.values.unknown_text import UnknownText


def is_object(value: Any) -> bool:
    """Whether `value` is an object of a Python class, whose special methods may be the program's."""
    kind = type(value)
    if kind in SYMBOLIC or kind in (Scalar, UnknownText, OpenText, UnknownArray):
        return False
    return bool(kind.__flags__ & HEAP_TYPE) and not isinstance(value, torch.Tensor)


def asks_itself(value: Any) -> bool:
    """Whether native code that wants a number would call methods of the program: of an object that holds none."""
    return is_object(value) and not issubclass(type(value), (int, float, complex))


def is_python(function: Any) -> bool:
    """Whether a callable is written in Python: a function, a method, a class or an object with a `__call__`."""
    return (
        isinstance(function, (types.FunctionType, types.MethodType, functools.partial))
        or (function is not None and is_object(function))
        or (isinstance(function, type) and bool(function.__flags__ & HEAP_TYPE))
    )


def index_of(world: Any, key: Any) -> Any:
    """`key` as native sequences take it: an object with an `__index__` written in Python is asked for its number."""
    if is_object(key):
        if issubclass(type(key), int):  # native code takes it for the number that it holds
            return key
        method = world.special(key, "__index__")
        if type(method) is types.FunctionType:
            return world.machine.call(operator.index, (key,))
    elif type(key) is slice and any(map(is_object, (key.start, key.stop, key.step))):
        return slice(*[index_of(world, each) for each in (key.start, key.stop, key.step)])
    return key


def indices_of(world: Any, key: Any) -> Any:
    """`index_of`, for each part of a tuple, too."""
    return tuple([index_of(world, each) for each in key]) if type(key) is tuple else index_of(world, key)


def objects_in(values: Any) -> list[Any]:
    """Such objects among the values, and in lists and tuples among them."""
    return [
        part for each in values for part in (objects_in(each) if type(each) in (list, tuple) else [each])
        if is_object(part)
    ]  # fmt: skip
