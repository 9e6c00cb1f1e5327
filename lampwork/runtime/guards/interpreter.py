"""The guard interpreter: reads sources as their rules say, and has the functions that rules and checks share.

Compiled checks name these functions `reading.…` for what they do not spell out; rules call them for what fails, and on
cold paths. Nothing here runs code of the program: paths are read through C-level slots, equality is tested on builtin
types only.
"""

from __future__ import annotations

import functools
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import field as dataclass_field
from dataclasses import fields
from types import FunctionType, GetSetDescriptorType, MappingProxyType
from typing import Any

import torch

from lampwork import _torch
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.guard import (
    TensorIs,
)
from lampwork.ir.number import Leaf
from lampwork.ir.operations import Left
from lampwork.ir.operations import context_value as context_value  # compiled checks name it
from lampwork.ir.operations import plain_contents as plain_contents  # and this
from lampwork.ir.operations import remaining as remaining  # and this
from lampwork.ir.operations import subclasses as subclasses  # and this
from lampwork.ir.operations import thread_names as thread_names
from lampwork.ir.record import record
from lampwork.ir.reference import PROPERTIES, ClassWith, code_digest, property_digest
from lampwork.ir.size import span
from lampwork.ir.source import Source
from lampwork.runtime.guards.plain_data import same_value, typed
from lampwork.runtime.guards.rules import step_of

_CachedFunction: Any = type(functools.cache(len))
_MISSING = object()
_mro = type.__dict__["__mro__"].__get__

#: What reading a path, or a relation of sizes, may raise when the objects of the program changed: the guard fails.
READ_ERRORS = (
    AttributeError,
    KeyError,
    IndexError,
    TypeError,
    ValueError,
    LookupError,
    StopIteration,
    ArithmeticError,
)


@record
class Scope:
    """One call: the compiled callable and what it is called with. `known`: values read so far, by id of the source,
    which is kept: the id of one that is gone is soon that of another."""

    function: object
    args: tuple
    kwargs: dict
    known: dict[int, tuple[Source, object]] = dataclass_field(default_factory=dict)


def plain_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """A plain tensor over the memory of one of a subclass, which is not asked, and with its version."""
    with _torch.without_torch_function():
        return tensor.detach()


def array_memory(array: Any) -> torch.Tensor:
    """The tensor over an array's memory. Raises TypeError or ValueError if there is none."""
    if not array.flags.writeable:
        raise ValueError("an array that may not be written")
    return torch.from_numpy(array)


def read(source: Source, scope: Scope) -> Any:
    """The value at `source` in `scope`; raises one of `READ_ERRORS` where the path leads nowhere."""
    known = scope.known.get(id(source))
    if known is None:
        known = scope.known[id(source)] = (source, step_of(source).read(source, scope))
    return known[1]


# Steps of a path. The compiled check calls these where it does not know the type of the base.


def instance_dict(value: object) -> dict:
    """`value.__dict__` without running a `__getattribute__` or property of the program."""
    if issubclass(type(value), type):
        return type.__dict__["__dict__"].__get__(value)
    return object.__getattribute__(value, "__dict__")


def remembered(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The answer of a cached function (`functools.lru_cache`); LookupError where `function` is none any more."""
    if type(function) is not _CachedFunction:
        raise LookupError("not a cached function")
    return function(*args, **kwargs)


def attribute(value: object, name: str) -> Any:
    """`getattr(value, name)` through a C-level descriptor of its type; methods written in Python are never run."""
    kind = type(value)
    if name == "__class__":
        return kind
    if issubclass(kind, type) and type(of_classes := type.__dict__.get(name)) is GetSetDescriptorType:
        return of_classes.__get__(value)  # not the metaclass's entry of that name, as its `__module__`
    for cls in kind.__mro__:
        found = cls.__dict__.get(name, _MISSING)
        if found is not _MISSING:
            getter = getattr(type(found), "__get__", None)
            if isinstance(found, FunctionType) or isinstance(getter, FunctionType):
                break
            if isinstance(found, property):
                break
            return found if getter is None else getter(found, value, kind)
    if issubclass(type(value), torch.Tensor) or issubclass(type(value), type):
        return getattr(value, name)
    return object.__getattribute__(value, name)


def item(value: Any, key: Any) -> Any:
    """`value[key]` by the builtin container's own method, whatever subclass `value` is. Changes nothing: a missing key
    of a `defaultdict` stays missing."""
    if issubclass(type(value), dict):
        found = dict.get(value, key, _MISSING)  # `dict.__getitem__` asks a subclass's `__missing__`
        if found is _MISSING:
            raise KeyError(key)
        return found
    if issubclass(type(value), list):
        return list.__getitem__(value, key)
    if issubclass(type(value), tuple):
        return tuple.__getitem__(value, key)
    if issubclass(type(value), deque):
        return deque.__getitem__(value, key)
    if issubclass(type(value), (MappingProxyType, range, str, bytes, Left)):
        return value[key]
    raise TypeError(f"{type(value).__name__} is no builtin container")


def keys_of(value: Any) -> tuple:
    """The keys of a dict (or elements of any set-like container), in order."""
    return tuple(value if not issubclass(type(value), dict) else dict.keys(value))


def key_at(value: object, index: int) -> Any:
    """The `index`-th of them."""
    return keys_of(value)[index]


def class_attribute(cls: type, name: str) -> Any:
    """The raw entry `name` along the MRO of `cls`; raises AttributeError where there is none."""
    for base in cls.__mro__:
        found = base.__dict__.get(name, _MISSING)
        if found is not _MISSING:
            return found
    raise AttributeError(name)


def class_lookup(cls: type, name: str) -> Any:
    """As `class_attribute`, None where there is none."""
    for base in cls.__mro__:
        found = base.__dict__.get(name, _MISSING)
        if found is not _MISSING:
            return found
    return None


# Tests ---------------------------------------------------------------------------------------------------------------


def function_is(value: object, digest: str) -> bool:
    """A Python function with this code digest."""
    return type(value) is FunctionType and code_digest(value.__code__) == digest


def _is_same_tensor(value: torch.Tensor, test: TensorIs) -> bool:
    """Whether a strided tensor is such a one, where `test` names all sizes; it may be one where this is false."""
    return (
        value.layout is torch.strided
        and value.shape == test.shape
        and value.stride() == test.strides
        and value.requires_grad == test.requires_grad
        and getattr(torch, test.dtype) is value.dtype
        and str(value.device) == test.device
        and (test.is_leaf is None or value.is_leaf == test.is_leaf)
        and test.layout == "strided"
        and value.is_inference() == test.is_inference
        and value.is_conj() == test.is_conj
        and value.is_neg() == test.is_neg
    )


def tensor_is(value: Any, test: TensorIs) -> str:
    """What differs between the tensor `value` and `test`, in words; empty when it is such a tensor."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name != test.tensor_type:
        return f"was a {test.tensor_type}, is now a {name}"
    with _torch.without_torch_function():
        if _is_same_tensor(value, test):
            return ""
        found = TensorIs(
            name,
            str(value.dtype).removeprefix("torch."),
            tuple(value.shape),
            tuple(value.stride()) if value.layout is torch.strided else (),
            str(value.device),
            value.requires_grad,
            str(value.layout).removeprefix("torch."),
            value.is_leaf,
            value.is_inference(),
            value.is_conj(),
            value.is_neg(),
        )
    changes = []
    for each in fields(TensorIs)[1:]:
        field = each.name
        expected, actual = getattr(test, field), getattr(found, field)
        if field in ("shape", "strides"):
            if len(expected) != len(actual):
                changes.append(f"{field} was {dims(expected)}, is now {dims(actual)}")
            elif any(left is not None and left != right for left, right in zip(expected, actual)):
                changes.append(f"{field} was {dims(expected)}, is now {dims(actual)}")
        elif field == "device":
            if torch.device(expected) != value.device:
                changes.append(f"device was {expected}, is now {actual}")
        elif not (field == "is_leaf" and expected is None) and expected != actual:
            changes.append(f"{field} was {expected}, is now {actual}")
    return "; ".join(changes)


def dims(values: Sequence[int | None]) -> str:
    return "[" + ", ".join("?" if value is None else str(value) for value in values) + "]"


def extent_bytes(test: TensorIs) -> int | None:
    """Bytes from a tensor's first element to the end of its last; None where its shape is dynamic."""
    shape = [size for size in test.shape if size is not None]
    strides = [stride for stride in test.strides if stride is not None]
    if len(shape) + len(strides) < len(test.shape) + len(test.strides):
        return None
    return span(shape, strides) * ITEM_SIZE_BYTES.get(test.dtype, 16)


def tensor_extent_bytes(tensor: torch.Tensor) -> int:
    """Bytes from a tensor's first element to the end of its last."""
    if tensor.is_contiguous():
        return tensor.nbytes
    if tensor.numel() == 0:
        return 0
    return (sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride())) + 1) * tensor.element_size()


def aliasing_is(pointers: Sequence[int], extents: Sequence[int], groups: Sequence[Sequence[tuple[int, int]]]) -> bool:
    """The tensors overlap exactly as `groups` says: members keep their offsets, nothing else overlaps."""
    ranges = []
    grouped = set()
    for group in groups:
        first = pointers[group[0][0]] - group[0][1]
        if any(pointers[index] - offset != first for index, offset in group):
            return False
        members = [index for index, _ in group]
        grouped.update(members)
        start = min(pointers[index] for index in members)
        ranges.append((start, max(pointers[index] + extents[index] for index in members)))
    for index, (pointer, extent) in enumerate(zip(pointers, extents)):
        if extent and index not in grouped:
            ranges.append((pointer, pointer + extent))
    ranges.sort()
    previous = 0
    for start, end in ranges:
        if start < previous:
            return False
        previous = end
    return True


def number_tensor(values: Sequence[float], device: str = "") -> torch.Tensor:
    """The numbers as one float64 tensor, whatever modes are active; on a GPU as of the current stream.

    They go there from pinned memory, which PyTorch's allocator hands out again when the copy is known to be done. A
    capture of the caller's would copy whatever is there when it is replayed: it gets a copy from memory that cannot be
    captured, and fails.
    """
    with torch.inference_mode(False):
        if not device:
            return torch.tensor(values, dtype=torch.float64, device="cpu")
        pinned = not _torch.is_cuda_capturing()
        made = torch.tensor(values, dtype=torch.float64, device="cpu", pin_memory=pinned)
        return made.to(device, non_blocking=pinned)


def number_at(leaf: Leaf, scope: Scope) -> Any:
    """The number that an expression speaks of, in this call."""
    return leaf.number(read(leaf.source, scope))


def builtin_length(value: Any) -> int:
    """`len(value)` by the builtin container's own method."""
    for kind in (dict, list, tuple, set, frozenset, deque, str, bytes, range, MappingProxyType):
        if issubclass(type(value), kind):
            return kind.__len__(value)
    if issubclass(type(value), Left):
        return len(value)
    raise TypeError(f"{type(value).__name__} is no builtin container")


def keys_are(value: Any, keys: tuple, ordered: bool) -> bool:
    """The container's keys or elements are `keys`; constants are compared by `same_value`."""
    if issubclass(type(value), OrderedDict):
        found = tuple(OrderedDict.keys(value))
    elif issubclass(type(value), dict):
        found = tuple(dict.keys(value))
    elif issubclass(type(value), (set, frozenset, MappingProxyType)):
        found = tuple(value)
    else:
        raise TypeError(f"{type(value).__name__} has no keys")
    if issubclass(type(value), (set, frozenset)):
        found = tuple([_torch.named_operator(each) for each in found])
    if ordered:
        return same_value(found, keys)
    return len(found) == len(keys) and {typed(each) for each in found} == {typed(each) for each in keys}


def has_key(value: Any, key: Any) -> bool:
    """`key in value` by the builtin container's own method."""
    if issubclass(type(value), dict):
        return dict.__contains__(value, key)
    if issubclass(type(value), (set, frozenset)):
        return key in (frozenset(value) if type(value) not in (set, frozenset) else value)
    if issubclass(type(value), (list, tuple, MappingProxyType)):
        return key in value
    raise TypeError(f"{type(value).__name__} is no builtin container")


def _unwrapped(actual: Any, wrapper: str) -> Any:
    """The function in the `wrapper` "staticmethod" or "classmethod", or the entry itself; None in another wrapper."""
    kind = type(actual)
    found = "classmethod" if issubclass(kind, classmethod) else "staticmethod" if issubclass(kind, staticmethod) else ""
    return None if found != wrapper else actual.__func__ if wrapper else actual


def has_code(actual: object, digest: str, wrapper: str = "") -> bool:
    """The class entry is a Python function with this code, of whatever name, or a property of such functions; what they
    close over has its own guards."""
    actual = _unwrapped(actual, wrapper)
    if type(actual) is not FunctionType:
        return type(actual) in PROPERTIES and property_digest(actual) == digest
    return function_is(actual, digest)


def is_class_with(value: object, has_contents: ClassWith) -> bool:
    """`value` is a class that has no importable name and these contents."""
    return isinstance(value, type) and has_contents(value)


def has_mro(cls: Any, bases: tuple) -> bool:
    """The class's bases, in its order of look-ups, are `bases`: classes, or what knows them by their contents."""
    order = _mro(cls)
    return len(order) == len(bases) + 1 and all(
        found is wanted or (type(wanted) is ClassWith and wanted(found)) for found, wanted in zip(order[1:], bases)
    )


def lookup_is(actual: object, expected: object, digest: str, wrapper: str = "") -> bool:
    """The class entry is `expected`, with unchanged code where it is a Python function, in the same wrapper."""
    if actual is not expected:
        actual = _unwrapped(actual, wrapper)
    elif wrapper:
        return False
    if actual is not expected:
        return False
    return not digest or type(actual) is not FunctionType or code_digest(actual.__code__) == digest
