"""Compiled modules: an instance of a subclass of the module's own class, over the very same `__dict__`.

    compiled = compile_module(module)
    isinstance(compiled, type(module)); compiled.state_dict().keys() == module.state_dict().keys()

There is one state: training flag, hooks, parameters and attributes set on either are set on both, and so is the class,
which parametrizations replace. Only the call differs. The compiled program's `self` is the original module.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any

import torch

from lampwork._torch import hide_from_peer, is_peer_tracing
from lampwork.runtime.function import CompiledFunction


def compile_module(module: torch.nn.Module, compiled: CompiledFunction, again: Callable) -> torch.nn.Module:
    """The compiled counterpart of `module`. `again(module)` compiles another module with the same settings.

    Raises TypeError for a module whose class keeps state in `__slots__`, which two objects cannot share.
    """
    made: Any = object.__new__(_compiled_class(type(module)))
    object.__setattr__(made, "__dict__", module.__dict__)
    object.__setattr__(made, "__lampwork__", compiled)
    object.__setattr__(made, "_lampwork_again", again)
    return made


class _Compiled:
    """What compiled modules have beside what their module has."""

    __slots__ = ("__lampwork__", "_lampwork_again")
    __lampwork__: CompiledFunction
    _lampwork_again: Callable

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if is_peer_tracing():
            return self.__lampwork__.function(*args, **kwargs)
        return self.__lampwork__.call(args, kwargs)

    @property
    def __class__(self) -> Any:
        """That of the module."""
        return type(self.__lampwork__.function)

    @__class__.setter
    def __class__(self, cls: type) -> None:
        self.__lampwork__.function.__class__ = cls
        _follow(self)

    def __getattr__(self, name: str) -> Any:
        # Nothing has this name, or what has it failed: perhaps since the module's class is another one by now.
        if _follow(self):
            return getattr(self, name)
        return super().__getattr__(name)  # type: ignore[misc]

    def __reduce_ex__(self, protocol: object) -> tuple:
        return _rebuild, (self._lampwork_again, self.__lampwork__.function)

    def __deepcopy__(self, memo: dict) -> Any:
        made = self._lampwork_again(copy.deepcopy(self.__lampwork__.function, memo))
        memo[id(self)] = made
        return made

    def __copy__(self) -> Any:
        return self._lampwork_again(copy.copy(self.__lampwork__.function))


hide_from_peer(_Compiled.__call__)

_set_class = vars(object)["__class__"].__set__


def _follow(compiled: Any) -> bool:
    """Gives the compiled module the class of its module; whether it had another."""
    cls = _compiled_class(type(compiled.__lampwork__.function))
    if type(compiled) is cls:
        return False
    _set_class(compiled, cls)
    return True


#: By the class of the module. A class is not kept alive by the one that is made of it.
_classes: weakref.WeakKeyDictionary[type, weakref.ref[type]] = weakref.WeakKeyDictionary()


def _compiled_class(cls: Any) -> type:
    made = _classes.get(cls, lambda: None)()
    if made is not None:
        return made
    taken = [name for base in cls.__mro__ for name in _slots(base) if name not in ("__dict__", "__weakref__")]
    if taken:
        names = ", ".join(taken)
        raise TypeError(f"{cls.__qualname__} keeps state in __slots__ ({names}), which a compiled module cannot share")
    body = {"__slots__": (), "__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    made = type(cls)(cls.__name__, (_Compiled, cls), body)
    _classes[cls] = weakref.ref(made)
    return made


def _slots(base: type) -> tuple[str, ...]:
    slots = base.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _rebuild(again: Callable, module: torch.nn.Module) -> Any:
    return again(module)
