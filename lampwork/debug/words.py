"""Parts of a program in words: lines of the user's source, guards by what they are about."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable
from typing import Any

from lampwork.ir.guard import (
    ArgumentCount,
    ClassLookup,
    Distinct,
    Equals,
    FunctionIs,
    Guard,
    HasKey,
    IsObject,
    KeysAre,
    LengthIs,
    ModuleIsPlain,
    SameObject,
    SizeRelation,
    StorageGroups,
    TensorIs,
    TypeIs,
)
from lampwork.ir.location import Location
from lampwork.ir.source import Argument, Keyword, Root, State, describe, is_static
from lampwork.runtime.guards.compile import root_of
from lampwork.runtime.guards.failures import in_words
from lampwork.runtime.guards.recompiles import with_names

#: What guards are about, in the order they are told.
GROUPS = (
    "arguments",
    "sizes that may vary",
    "sharing among tensors and objects",
    "process state",
    "weights and buffers",
    "modules and objects",
    "globals, classes and functions",
)


def source_line(location: Location) -> str:
    """The text of the line, without its indentation; empty where it is not known."""
    return linecache.getline(location.file, location.line).strip() if location.file and location.line > 0 else ""


def place(location: Location) -> str:
    return f"{location.file}:{location.line}" if location.file else ""


def grouped(guards: Iterable[Guard], function: Callable | None = None) -> dict[str, list[tuple[str, Location]]]:
    """Guards in words with the line that read the value, by `GROUPS`; parameters by name where `function` tells."""
    groups: dict[str, list[tuple[str, Location]]] = {name: [] for name in GROUPS}
    for guard in guards:
        words = guard_words(guard)
        groups[_group(guard)].append((with_names(words, function) if function is not None else words, guard.location))
    return {name: found for name, found in groups.items() if found}


def _group(guard: Guard) -> str:
    if isinstance(guard.test, (Distinct, StorageGroups, SameObject)):
        return "sharing among tensors and objects"
    if isinstance(guard.test, SizeRelation):
        return "sizes that may vary"
    root = root_of(guard.source)
    if isinstance(guard.test, ArgumentCount) or isinstance(root, (Argument, Keyword)):
        return "arguments"
    if isinstance(root, State):
        return "process state"
    if isinstance(guard.test, TensorIs):
        return "weights and buffers"
    if isinstance(root, Root) and is_static(guard.source) and not isinstance(guard.test, (ClassLookup, FunctionIs)):
        return "modules and objects"
    return "globals, classes and functions"


def guard_words(guard: Guard) -> str:
    """What the guard says, as the user would put it."""
    where = describe(guard.source)
    match guard.test:
        case ArgumentCount(positional, keywords):
            named = f" and {', '.join(keywords)}" if keywords else ""
            return f"called with {positional} positional arguments{named}"
        case TypeIs(ref):
            return f"type of {where} is {ref.module}.{ref.qualname}"
        case Equals(value):
            return f"{where} == {value!r}"
        case IsObject(ref):
            return f"{where} is {ref.module}.{ref.qualname}".rstrip(".")
        case FunctionIs(ref):
            return f"{where} is a function with the code of {ref.module}.{ref.qualname}"
        case TensorIs(tensor_type, dtype, shape, strides, device, requires_grad):
            grad = ", requires grad" if requires_grad else ""
            kind = tensor_type.rpartition(".")[2]
            return f"{where} is a {kind} {dtype}{_dims(shape)} strides {_dims(strides)} on {device}{grad}"
        case LengthIs(length):
            return f"len({where}) == {length}"
        case KeysAre(keys, ordered):
            return f"keys of {where} are {list(keys)!r}" + ("" if ordered else " in any order")
        case HasKey(key, present):
            return f"{key!r} {'in' if present else 'not in'} {where}"
        case ClassLookup(name, found):
            return f"{where}.{name} is {'absent' if found is None else found.qualname}"
        case SameObject(other):
            return f"{where} is {describe(other)}"
        case Distinct(others):
            return f"{len(others) + 1} objects are different: {where}, " + ", ".join(map(describe, others))
        case StorageGroups(sources, groups):
            if groups:
                return f"{len(sources)} tensors overlap in memory in {len(groups)} groups"
            return f"no two of {len(sources)} tensors overlap in memory"
        case SizeRelation():
            return in_words(guard.test)
        case ModuleIsPlain(names, empty):
            return f"{where} has no {', '.join(names)} of its own; {', '.join(empty)} are empty"
    return f"{where}: {guard.test!r}"


def _dims(values: tuple[Any, ...]) -> str:
    return "[" + ", ".join("any" if value is None else str(value) for value in values) + "]"
