"""What a snapshot relies on: objects whose addresses are in it, and so must not be given to others.

An entry keeps no module, optimizer or other object of the program's alive that the program lets go of. So of each
object that can have weak references only such a reference is kept, and when one of them is gone the snapshot is
forgotten: before the memory is anybody else's. Only what can have none (dicts, lists, numbers, cells) is kept itself.

Weights are what is left: as long as a snapshot stays, its entry holds them, so that a call need not look for them. They
go with the module or optimizer that they belong to. (A tensor that the program itself holds, in a list or a closure, is
let go of at the next call that finds another one there.)
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

_FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType)


def kept(objects: Iterable[object], gone: Callable[[Any], object]) -> tuple[object, ...]:
    """What stands for `objects` as long as it is kept itself; calls `gone` where one of them goes before."""
    distinct = {id(each): each for each in objects}
    return tuple(_reference(each, gone) for each in distinct.values())


def has_own_life(value: object) -> bool:
    """Whether a value that was read is an object somewhere, rather than made for whoever reads it, as methods are."""
    kind = type(value)
    return bool(kind.__weakrefoffset__) and not issubclass(kind, (torch.Tensor, type, ModuleType, *_FUNCTIONS))


def weakly(value: object) -> weakref.ref | None:
    """A weak reference to a module, an optimizer, or another object of the program's; None for what entries hold:
    weights, classes, and what has no weak references."""
    kind = type(value)
    if not kind.__weakrefoffset__ or issubclass(kind, (torch.Tensor, type, ModuleType)):
        return None
    return weakref.ref(value)


def _reference(value: object, gone: Callable[[Any], object]) -> object:
    kind = type(value)
    # Classes and Python modules hardly ever go, and have many users.
    is_kept = not kind.__weakrefoffset__ or issubclass(kind, (type, ModuleType))
    return value if is_kept else weakref.ref(value, gone)
