"""State that a program keeps in plain Python: counters in closures, lists that it fills, attributes of its own objects.

What a function reaches is walked through: cells of its closure, globals that it names, what containers and objects of
the user's own classes hold, functions that it calls. Each is saved as it is, without a copy of what it holds, which is
walked through in turn. Iterators cannot be put back; files, and functions of installed packages, are left alone.
"""

from __future__ import annotations

import functools
import random
import sys
import sysconfig
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

Undo = Callable[[], None]

#: Objects that are walked through at most.
MOST_OBJECTS = 20_000

_CONTAINERS = (list, dict, set, deque, bytearray)
_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)
#: Packages whose objects are saved by others here, or hold what belongs to the process: threads, locks, files.
_LEFT_ALONE = frozenset({"torch", "numpy", "lampwork"}) | sys.stdlib_module_names
#: Where installed packages and Python's own modules lie.
_INSTALLED = tuple({sysconfig.get_path(each) for each in ("purelib", "platlib", "stdlib", "platstdlib")})


class PlainState:
    """What was found from `roots`: `undo` puts plain state back, `tensors` and `holders` (which have a `state_dict`)
    are for others to save."""

    def __init__(self, *roots: object) -> None:
        self.undo: list[Undo] = []
        self.tensors: list[torch.Tensor] = []
        self.holders: list[Any] = []
        self._kept: dict[int, object] = {}
        waiting: deque[object] = deque(roots)
        while waiting and len(self._kept) < MOST_OBJECTS:
            value = waiting.popleft()
            if id(value) not in self._kept:
                self._kept[id(value)] = value
                waiting.extend(self._visit(value))

    def _visit(self, value: Any) -> Iterable[object]:
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
        elif isinstance(value, _FUNCTIONS):
            return self._function(value)
        elif type(value) in _CONTAINERS:
            self.undo.append(_container(value))
            return value.values() if isinstance(value, dict) else () if isinstance(value, bytearray) else tuple(value)
        elif isinstance(value, tuple):
            return value
        elif isinstance(value, random.Random | torch.Generator) or type(value).__module__.startswith("numpy.random"):
            self.undo.extend(_generator(value))
        elif not isinstance(value, type) and hasattr(type(value), "state_dict"):
            self.holders.append(value)
        elif _is_users(value):
            self.undo.append(_attributes(value))
            return (*vars(value).values(), *_methods(value))
        return ()

    def _function(self, value: Any) -> Iterator[object]:
        if isinstance(value, types.MethodType):
            yield from (value.__self__, value.__func__)
            return
        if isinstance(value, functools.partial):
            yield from (value.func, *value.args, *value.keywords.values())
            return
        if _is_installed(value):
            return
        for cell in value.__closure__ or ():
            try:
                contents = cell.cell_contents
            except ValueError:  # nothing in it yet
                continue
            self.undo.append(_cell(cell, contents))
            yield contents
        if hasattr(value, "__wrapped__"):
            yield value.__wrapped__
        names = _names(value.__code__)
        found = {name: value.__globals__[name] for name in names if name in value.__globals__}
        self.undo.append(_globals(value.__globals__, found))
        yield from found.values()


def _is_installed(function: types.FunctionType) -> bool:
    return _library(function) in _LEFT_ALONE or function.__code__.co_filename.startswith(_INSTALLED)


def _library(value: Any) -> str:
    return str(getattr(value, "__module__", None) or "").partition(".")[0]


def _is_users(value: Any) -> bool:
    kind = type(value)
    return not isinstance(value, types.ModuleType | type) and hasattr(value, "__dict__") and (
        _library(kind) not in _LEFT_ALONE and kind.__module__ != "builtins"
    )  # fmt: skip


def _methods(value: Any) -> Iterator[object]:
    """The functions of the object's own class, which name globals."""
    for base in type(value).__mro__:
        if _library(base) not in _LEFT_ALONE:
            yield from (each for each in vars(base).values() if isinstance(each, types.FunctionType))


def _names(code: types.CodeType) -> set[str]:
    found = set(code.co_names)
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            found |= _names(each)
    return found


def _container(value: Any) -> Undo:
    saved = value.copy()

    def undo() -> None:
        value.clear()
        if isinstance(value, dict | set):
            value.update(saved)
        else:
            value.extend(saved)

    return undo


def _attributes(value: Any) -> Undo:
    held = vars(value)
    saved = dict(held)

    def undo() -> None:
        for name in [name for name in held if name not in saved]:
            del held[name]
        held.update(saved)

    return undo


def _cell(cell: types.CellType, contents: object) -> Undo:
    def undo() -> None:
        cell.cell_contents = contents

    return undo


def _globals(names: dict[str, Any], saved: dict[str, object]) -> Undo:
    def undo() -> None:
        for name, value in saved.items():
            if names.get(name, saved) is not value:
                names[name] = value

    return undo


def _generator(value: Any) -> Iterator[Undo]:
    if isinstance(value, random.Random):
        plain = value.getstate()
        yield lambda: value.setstate(plain)
    elif isinstance(value, torch.Generator):
        state = value.get_state()
        yield lambda: value.set_state(state) and None
    elif hasattr(value, "bit_generator"):
        array = value.bit_generator.state
        yield lambda: setattr(value.bit_generator, "state", array)
    elif hasattr(value, "get_state"):
        legacy = value.get_state()
        yield lambda: value.set_state(legacy)
