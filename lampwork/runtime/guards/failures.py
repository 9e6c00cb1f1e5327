"""Why a guard does not hold, in words that name the path, what was expected and what was found.

    model.training was True, is now False
    x shape was (4, 8), is now (5, 8)

These are for messages and for cold paths; `compile.py` compiles what calls check.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import torch

from lampwork.ir.dtype import SHORT
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
    ObjectRef,
    SameObject,
    SizeRelation,
    StorageGroups,
    TensorIs,
    TypeIs,
)
from lampwork.ir.reference import ClassWith, decides_by_code, decides_by_contents, resolve
from lampwork.ir.source import Source, describe
from lampwork.runtime.guards.interpreter import (
    READ_ERRORS,
    Scope,
    aliasing_is,
    builtin_length,
    class_lookup,
    dims,
    evaluate_sizes,
    function_is,
    has_code,
    has_key,
    instance_dict,
    is_class_with,
    keys_are,
    lookup_is,
    read,
    same_value,
    size_at,
    tensor_extent_bytes,
    tensor_is,
)


def why_not(guard: Guard, scope: Scope) -> str:
    """Why `guard` does not hold in `scope`, in words that name the path, what was expected and what was found.

    Empty when it holds.
    """
    try:
        if isinstance(guard.test, ArgumentCount):
            value: Any = None
        else:
            value = read(guard.source, scope)
        text = _difference(guard, value, scope)
    except READ_ERRORS as error:
        return f"{describe(guard.source)} cannot be read any more ({type(error).__name__}: {error})"
    if not text:
        return ""
    return describe(guard.source) + ("" if text.startswith(".") else " ") + text


def _is_class(value: Any, ref: ObjectRef) -> bool:
    """Whether `value` is what `ref` names: a class, or another object."""
    if decides_by_contents(ref):
        return is_class_with(value, ClassWith(ref.digest))
    return value is resolve(ref)


def _difference(guard: Guard, value: Any, scope: Scope) -> str:
    match guard.test:
        case ArgumentCount(positional, keywords):
            if len(scope.args) != positional or set(scope.kwargs) != set(keywords):
                expected = f"{positional} positional and keywords {sorted(keywords)}"
                return f"was called with {expected}, now {len(scope.args)} positional and {sorted(scope.kwargs)}"
        case TypeIs(ref):
            if not _is_class(type(value), ref):
                kind = type(value)
                return f"was a {ref.module}.{ref.qualname}, is now a {kind.__module__}.{kind.__qualname__}"
        case Equals(expected):
            if not same_value(value, expected):
                return f"was {short(expected)}, is now {short(value)}"
        case IsObject(ref):
            if not _is_class(value, ref):
                return f"was {ref.module}.{ref.qualname}, is now {short(value)}"
        case FunctionIs(ref):
            if not function_is(value, ref.digest):
                name = f"{ref.module}.{ref.qualname}"
                return f"was the function {name}; its code changed or it was replaced by {short(value)}"
        case TensorIs():
            return tensor_is(value, guard.test)
        case LengthIs(length):
            if builtin_length(value) != length:
                return f"had {length} items, has now {builtin_length(value)}"
        case KeysAre(keys, ordered):
            if not keys_are(value, keys, ordered):
                return f"had the keys {short(keys)}, has now {short(tuple(value))}"
        case HasKey(key, present):
            if has_key(value, key) is not present:
                return f"{'lost' if present else 'gained'} the key {key!r}"
        case ClassLookup(name, found, wrapper):
            actual = class_lookup(value, name)
            if found is not None and decides_by_code(found):
                same = has_code(actual, found.digest, wrapper)
            else:
                wanted = None if found is None else resolve(found)
                same = lookup_is(actual, wanted, "" if found is None else found.digest, wrapper)
            if not same:
                return f".{name} was {'absent' if found is None else found.qualname}, is now {short(actual)}"
        case SameObject(other):
            if value is not read(other, scope):
                return f"was the same object as {describe(other)}, is now another"
        case Distinct(others):
            values = [value, *(read(other, scope) for other in others)]
            if len({id(each) for each in values}) != len(values):
                return f"and {', '.join(map(describe, others))} were different objects, two of them are now the same"
        case StorageGroups(sources, groups):
            tensors = [read(each, scope) for each in sources]
            pointers = [tensor.data_ptr() for tensor in tensors]
            if not aliasing_is(pointers, [tensor_extent_bytes(tensor) for tensor in tensors], groups):
                return f"and {len(sources) - 1} other tensors overlap in memory in another way than before"
        case SizeRelation(text, sizes):
            numbers = {size.name: size_at(size, scope) for size in sizes}
            if not evaluate_sizes(text, numbers):
                known = ", ".join(dict.fromkeys(map(str, numbers.values())))
                return f"needs {in_words(guard.test)}, which does not hold for {known}"
        case ModuleIsPlain(names, empty):
            attributes = instance_dict(value)
            for name in names:
                if name in attributes:
                    return f"now has an instance attribute {name}"
            for name in empty:
                if attributes[name]:
                    return f".{name} was empty, has now {len(attributes[name])} entries"
        case _:
            raise TypeError(f"not a test: {guard.test!r}")
    return ""


#: A chain of more equal numbers than these is not written out.
_NUMBERS_IN_WORDS = 6


def in_words(test: SizeRelation) -> str:
    """The relation with its integers named by where they come from: `2 <= argument 0.size(1)`."""
    text = test.text
    if len(test.sizes) > _NUMBERS_IN_WORDS and text == " == ".join(size.name for size in test.sizes):
        first, last = (f"{describe(size.source)}.item()" for size in (test.sizes[0], test.sizes[-1]))
        return f"{first} and {len(test.sizes) - 1} other numbers like {last} to be equal"
    for size in test.sizes:
        where = describe(size.source)
        if size.kind in ("offset", "item"):
            where = f"{where}.{'storage_offset' if size.kind == 'offset' else 'item'}()"
        elif size.kind != "value":
            where = f"{where}.{'size' if size.kind == 'shape' else 'stride'}({size.axis})"
        text = re.sub(rf"\b{size.name}\b", where, text)
    return text


def evaluate(
    guards: Sequence[Guard], reads: Sequence[Source], function: Any, args: tuple, kwargs: dict
) -> tuple | None:
    """What the compiled check of `guards` returns, without compiling it: for checks that run once or twice."""
    scope = Scope(function, args, kwargs)
    try:
        for guard in guards:
            value = None if isinstance(guard.test, ArgumentCount) else read(guard.source, scope)
            if _difference(guard, value, scope):
                return None
        return tuple(read(source, scope) for source in reads)
    except READ_ERRORS:
        return None


_PRINTED = (int, float, bool, str, bytes, tuple, type(None), complex, torch.dtype, torch.device, slice, range)


def short(value: Any, limit: int = 60) -> str:
    """`repr` for messages: safe, one line, at most `limit` characters."""
    if issubclass(type(value), torch.Tensor):
        try:
            return f"{SHORT.get(str(value.dtype).removeprefix('torch.'), value.dtype)}{dims(tuple(value.shape))}"
        except Exception:
            return "a tensor"
    if type(value) not in _PRINTED:
        if issubclass(type(value), (type, FunctionType)):
            return f"{value.__module__}.{value.__qualname__}"
        if not issubclass(type(value), enum.Enum):
            return f"a {type(value).__module__}.{type(value).__qualname__}"
    if type(value) is tuple:
        return _short_tuple(value, limit)
    text = repr(value).replace("\n", " ")
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _short_tuple(values: tuple, limit: int) -> str:
    """As `short`; what is not printed is not made into text: printing hundreds of tensors takes a second."""
    text = "("
    for index, each in enumerate(values):
        text += f"{short(each, limit)}{', ' if index + 1 < len(values) else ',' if len(values) == 1 else ''}"
        if len(text) >= limit:
            return text[: limit - 3] + "..."
    return text + ")" if len(text) < limit else text[: limit - 3] + "..."


def first_failure(guards: Sequence[Guard], function: Callable, args: tuple, kwargs: dict) -> tuple[Guard, str] | None:
    """The first guard that does not hold for this call, and why in words; None when all hold."""
    scope = Scope(function, args, kwargs)
    for guard in guards:
        reason = why_not(guard, scope)
        if reason:
            return guard, reason
    return None


def explain_failure(guards: Sequence[Guard], function: Callable, args: tuple, kwargs: dict) -> str:
    """The first guard that does not hold for this call, in words with the line that read it; empty when all hold."""
    failed = first_failure(guards, function, args, kwargs)
    if failed is None:
        return ""
    location = failed[0].location
    return failed[1] + (f" (read at {location.file}:{location.line})" if location.file else "")
