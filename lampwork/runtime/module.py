"""Compiled modules: an instance of a subclass of the module's own class, over the very same `__dict__`.

    compiled = compile_module(module)
    isinstance(compiled, type(module)); compiled.state_dict().keys() == module.state_dict().keys()

There is one state: training flag, hooks, parameters and attributes set on either are set on both. Only the call
differs. The compiled program's `self` is the original module.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch

from lampwork._torch import hide_from_peer, is_peer_tracing
from lampwork.runtime.function import CompiledFunction


def compile_module(module: torch.nn.Module, compiled: CompiledFunction, again: Callable) -> torch.nn.Module:
    """The compiled counterpart of `module`. `again(module)` compiles another module with the same settings.

    Raises TypeError for a module whose class keeps state in `__slots__`, which two objects cannot share.
    """
    original: Any = type(module)
    cls = _compiled_class(original)
    made: Any = object.__new__(cls)
    object.__setattr__(made, "__dict__", module.__dict__)
    object.__setattr__(made, "__lampwork__", compiled)
    object.__setattr__(made, "_lampwork_again", again)
    return made


@functools.cache
def _compiled_class(cls: type) -> type:
    taken = [name for base in cls.__mro__ for name in _slots(base) if name not in ("__dict__", "__weakref__")]
    if taken:
        names = ", ".join(taken)
        raise TypeError(f"{cls.__qualname__} keeps state in __slots__ ({names}), which a compiled module cannot share")
    body = {
        "__slots__": ("__lampwork__", "_lampwork_again"),
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__call__": _call,
        "__reduce_ex__": _reduce_ex,
        "__deepcopy__": _deepcopy,
        "__copy__": _copy,
    }
    return type(cls)(cls.__name__, (cls,), body)


def _slots(base: type) -> tuple[str, ...]:
    slots = base.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _call(self: Any, /, *args: Any, **kwargs: Any) -> Any:
    if is_peer_tracing():
        return self.__lampwork__.function(*args, **kwargs)
    return self.__lampwork__.call(args, kwargs)


hide_from_peer(_call)


def _reduce_ex(self: Any, protocol: int) -> tuple:
    return _rebuild, (self._lampwork_again, self.__lampwork__.function)


def _deepcopy(self: Any, memo: dict) -> Any:
    made = self._lampwork_again(copy.deepcopy(self.__lampwork__.function, memo))
    memo[id(self)] = made
    return made


def _copy(self: Any) -> Any:
    return self._lampwork_again(copy.copy(self.__lampwork__.function))


def _rebuild(again: Callable, module: torch.nn.Module) -> Any:
    return again(module)
