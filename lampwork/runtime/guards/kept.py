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
from types import ModuleType
from typing import Any

import torch

#: `Py_TPFLAGS_HEAPTYPE`
_HEAP_TYPE = 1 << 9


def kept(objects: Iterable[object], gone: Callable[[Any], object]) -> tuple[object, ...]:
    """What stands for `objects` as long as it is kept itself; calls `gone` where one of them goes before."""
    distinct = {id(each): each for each in objects}
    return tuple(_reference(each, gone) for each in distinct.values())


def has_own_life(value: object) -> bool:
    """Whether a value that was read is an object of a class in Python, such as a module or an optimizer, that is stored
    somewhere, rather than made for whoever reads it, as methods and copies are; and no weight."""
    kind = type(value)
    return bool(kind.__weakrefoffset__ and kind.__flags__ & _HEAP_TYPE) and not issubclass(
        kind, (torch.Tensor, type, ModuleType)
    )


def _reference(value: object, gone: Callable[[Any], object]) -> object:
    kind = type(value)
    # Classes and Python modules hardly ever go, and have many users.
    is_kept = not kind.__weakrefoffset__ or issubclass(kind, (type, ModuleType))
    return value if is_kept else weakref.ref(value, gone)
