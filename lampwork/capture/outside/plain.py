"""Plain data: immutable values that are guarded by being equal, and values that native code may hash and compare."""

from __future__ import annotations

import ctypes
import datetime
import enum
import functools
import hashlib
import re
import threading
import types
import weakref
from typing import Any

import numpy
import torch

from lampwork import _torch
from lampwork.capture.machine.attributes import find_in_class
from lampwork.capture.outside.overlay import IdentityNumber

#: Immutable plain data whose value is guarded with `Equals`.
PLAIN_TYPES: frozenset[type] = frozenset({
    type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented), range, slice,
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, _torch.AttentionBackend,
    re.Pattern,
})  # fmt: skip

#: C classes of the standard library whose instances are made of plain data (`natives/standard_values.py`). Dates do not
#: change, and leave a region; digests do neither.
DATES: frozenset[type] = frozenset({datetime.date, datetime.datetime, datetime.time, datetime.timedelta})
DIGESTS: frozenset[type] = frozenset({type(hashlib.new("sha256")), hashlib.blake2b, hashlib.blake2s})

#: A class's flag: made while the program runs, by a `class` statement.
HEAP_TYPE = 1 << 9
#: A class's flag: nobody may set its attributes. Classes that C code makes on the heap have it.
IMMUTABLE_TYPE = 1 << 8
_WORD = ctypes.sizeof(ctypes.c_void_p)


def is_plain(value: Any) -> bool:
    """Whether `value` is immutable plain data through and through (the domain of `Equals`)."""
    kind = type(value)
    if kind in PLAIN_TYPES:
        if kind is slice:
            return is_plain(value.start) and is_plain(value.stop) and is_plain(value.step)
        return kind is not torch.Size or all(type(each) is int for each in value)
    if kind is tuple or kind is frozenset:
        return all(map(is_plain, value))
    return isinstance(value, (enum.Enum, numpy.number, numpy.bool_))


def has_identity_hash(value: Any) -> bool:
    """Whether hashing and comparing `value` natively runs no Python code and reads only identity or plain data."""
    kind = type(value)
    if kind in PLAIN_TYPES or issubclass(kind, IdentityNumber):
        return True
    if isinstance(value, (type, types.FunctionType, types.ModuleType, torch.Tensor, enum.Enum, *_torch.OPERATOR_TYPES)):
        return True
    if kind is tuple or kind is frozenset:
        return all(map(has_identity_hash, value))
    if isinstance(value, weakref.ReferenceType) and find_in_class(kind, "__hash__") is weakref.ReferenceType.__hash__:
        target = value()
        return target is not None and has_identity_hash(target)
    if find_in_class(kind, "__hash__") is not object.__hash__:
        return False
    return find_in_class(kind, "__eq__") is object.__eq__


#: What objects of these keep is their dict, or parts that are loaded as attributes, each with its guard.
_KEPT_IN_SIGHT = (types.SimpleNamespace, property, classmethod, staticmethod, functools.partial, threading.local)


class _Plain:
    """Its objects hold a dict and weak references."""


def holds_native_state(cls: type) -> bool:
    """Whether objects of a class written in Python hold something that only C code sees, because the class derives from
    one in C that has memory for it: `class Samples(array.array)`, a structure of `ctypes`. PyTorch's own do not count:
    what is asked of them is in tables."""
    if cls.__basicsize__ <= _Plain.__basicsize__:
        return False
    kind: type | None = cls
    while kind is not None:
        space = vars(kind)
        if not kind.__flags__ & HEAP_TYPE or kind.__flags__ & IMMUTABLE_TYPE:
            holds_more = kind.__basicsize__ > object.__basicsize__
            return holds_more and not issubclass(cls, _KEPT_IN_SIGHT) and not _is_of_pytorch(kind)
        known = sum(type(each) is types.MemberDescriptorType for each in space.values())
        known += ("__dict__" in space) + ("__weakref__" in space)
        base = kind.__base__
        if base is not None and kind.__basicsize__ - base.__basicsize__ > known * _WORD:
            return not _is_of_pytorch(kind)
        kind = base
    return False


def _is_of_pytorch(cls: type) -> bool:
    return str(cls.__module__).partition(".")[0] in ("torch", "pybind11_builtins")


def bound_owner(function: Any) -> Any:
    """The object that a C method is bound to; None for functions of modules, static and class methods."""
    owner = function.__self__
    if owner is None or isinstance(owner, (types.ModuleType, type)) or type(owner).__module__ == "pybind11_builtins":
        return None
    return owner
