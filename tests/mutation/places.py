"""Everything that can be reached from a call: a place is a holder and a key, found by a path that both worlds share."""

from __future__ import annotations

import builtins
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

#: Steps of a path: ("arg", 0), ("global", "x"), ("attribute", "x"), ("item", k), ("cell", 0), ("default", 0),
#: ("kwdefault", "x"), ("class",), ("base", 0), ("member", "x").
Path = tuple[tuple, ...]
_LIMIT = 400
_SKIPPED_MEMBERS = frozenset({
    "__dict__", "__weakref__", "__module__", "__doc__", "__qualname__", "__annotations__", "__slots__",
    "__orig_bases__", "__parameters__", "__abstractmethods__", "_abc_impl", "__dataclass_fields__", "__match_args__",
    "__dataclass_params__", "__firstlineno__", "__static_attributes__", "__classcell__",
})  # fmt: skip


@dataclass(frozen=True)
class Root:
    """Where paths of one world start: the function that is called, its arguments, the module it is in."""

    function: Any
    arguments: list[Any]
    module: types.ModuleType


def plain_function(function: Any) -> types.FunctionType | None:
    while isinstance(function, (types.MethodType, staticmethod, classmethod)):
        function = function.__func__
    return function if isinstance(function, types.FunctionType) else None


def value_at(root: Root, path: Path) -> Any:
    """The object at the end of `path`. Raises LookupError, AttributeError, TypeError where there is none."""
    value: Any = root
    for step in path:
        value = _step(value, step)
    return value


def _step(value: Any, step: tuple) -> Any:
    match step:
        case ("function",):
            return value.function
        case ("arg", index):
            return value.arguments[index]
        case ("global", name):
            return plain_function(value).__globals__[name]  # type: ignore[union-attr]
        case ("attribute", name):
            return vars(value)[name] if name in getattr(value, "__dict__", ()) else object.__getattribute__(value, name)
        case ("item", key):
            return value[key]
        case ("cell", index):
            return plain_function(value).__closure__[index].cell_contents  # type: ignore[union-attr,index]
        case ("default", index):
            return plain_function(value).__defaults__[index]  # type: ignore[union-attr,index]
        case ("kwdefault", name):
            return plain_function(value).__kwdefaults__[name]  # type: ignore[union-attr]
        case ("class",):
            return type(value)
        case ("base", index):
            return value.__bases__[index]
        case ("member", name):
            return vars(value)[name]
        case ("owner",):
            return value.__self__
    raise LookupError(step)


def names_in(code: types.CodeType) -> set[str]:
    """Names that a function and those inside of it use."""
    found = {*code.co_names}
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            found |= names_in(each)
    return found


def places(root: Root) -> Iterator[tuple[Path, Any]]:
    """(path, value) of each object that the call can reach, nearest first, each object once. Classes and functions
    count where they are the program's own."""
    seen: set[int] = set()
    pending: list[tuple[Path, Any]] = [((("function",),), root.function)]
    pending += [((("arg", index),), value) for index, value in enumerate(root.arguments)]
    count = 0
    while pending and count < _LIMIT:
        path, value = pending.pop(0)
        atom = isinstance(value, (int, float, str, bytes, type(None), complex))
        if not atom and id(value) in seen:
            continue
        seen.add(id(value))
        count += 1
        yield path, value
        if not atom:
            pending += _next(root, path, value)


def _own(root: Root, value: Any) -> bool:
    return getattr(value, "__module__", None) == root.module.__name__


def _next(root: Root, path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, types.MethodType):
        yield (*path, ("owner",)), value.__self__
    function = plain_function(value)
    if function is not None:
        if _own(root, function):
            yield from _of_function(path, function)
        return
    if isinstance(value, type):
        if _own(root, value):
            for name, member in vars(value).items():
                if name not in _SKIPPED_MEMBERS:
                    yield (*path, ("member", name)), member
            for index, base in enumerate(value.__bases__):
                yield (*path, ("base", index)), base
        return
    if isinstance(value, (types.ModuleType, torch.dtype, torch.device)):
        return
    if type(value) is dict or isinstance(value, dict):
        for key in list(dict.keys(value)):
            if isinstance(key, (str, int, float, bool, type(None), tuple)):
                yield (*path, ("item", key)), dict.__getitem__(value, key)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(list(value)[:8]):
            yield (*path, ("item", index)), item
    held = getattr(value, "__dict__", None)
    if isinstance(held, dict) and not isinstance(value, torch.Tensor):
        for name, item in list(held.items()):
            yield (*path, ("attribute", name)), item
    if _own(root, type(value)):
        yield (*path, ("class",)), type(value)
    if isinstance(value, torch.nn.Module):
        for table in ("_parameters", "_buffers", "_modules"):
            for name, item in vars(value)[table].items():
                yield (*path, ("attribute", table), ("item", name)), item


def _of_function(path: Path, function: types.FunctionType) -> Iterator[tuple[Path, Any]]:
    for index, value in enumerate(function.__defaults__ or ()):
        yield (*path, ("default", index)), value
    for name, value in (function.__kwdefaults__ or {}).items():
        yield (*path, ("kwdefault", name)), value
    for index, cell in enumerate(function.__closure__ or ()):
        try:
            yield (*path, ("cell", index)), cell.cell_contents
        except ValueError:
            pass
    for name in sorted(names_in(function.__code__)):
        if name in function.__globals__ and not (hasattr(builtins, name) and name.startswith("__")):
            value = function.__globals__[name]
            if not isinstance(value, types.ModuleType):
                yield (*path, ("global", name)), value
