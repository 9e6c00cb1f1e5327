"""What a class holds that the program makes while it is captured. Instances that leave the region bring it along."""

from __future__ import annotations

import collections
from collections.abc import Callable
from types import CellType, FunctionType, MethodType
from typing import Any

import torch

from lampwork.capture.outside.container_overlays import getattr_dict
from lampwork.capture.outside.plain import HEAP_TYPE
from lampwork.capture.record.fake import Fake
from lampwork.capture.values.scalars import ScalarFamily
from lampwork.capture.values.sizes import SYMBOLIC
from lampwork.capture.values.unknown_array import UnknownArray
from lampwork.capture.values.unknown_text import UnknownText

_STAND_INS = frozenset({Fake, UnknownArray, UnknownText, *SYMBOLIC, *ScalarFamily.stand_ins})
_CONTAINERS = (list, tuple, set, frozenset, collections.deque)


def holds_stand_ins(cls: type, is_made: Callable[[type], bool]) -> bool:
    """Whether methods and attributes of a class, or of its bases, lead to what stands for a value in this capture.
    `is_made`: whether a class may be the program's own; others were there before."""
    seen: set[int] = set()
    found: list[Any] = [cls]
    while found:
        value = found.pop()
        if type(value) in _STAND_INS:
            return True
        if id(value) not in seen:
            seen.add(id(value))
            found += _contents(value, is_made)
    return False


def _contents(value: Any, is_made: Callable[[type], bool]) -> list[Any]:
    kind = type(value)
    if issubclass(kind, type):
        return [*vars(value).values(), *value.__mro__[1:]] if is_made(value) else []
    if kind is FunctionType:
        cells = [_held(cell) for cell in value.__closure__ or ()]
        return [*cells, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(), *value.__dict__.values()]
    if kind is MethodType:
        return [value.__func__, value.__self__]
    if kind is property:
        return [value.fget, value.fset, value.fdel]
    if kind in (classmethod, staticmethod):
        return [value.__func__]
    if kind in _CONTAINERS:
        return list(value)
    if kind is dict:
        return [*value, *value.values()]
    if kind.__flags__ & HEAP_TYPE and not issubclass(kind, torch.nn.Module):
        return list((getattr_dict(value) or {}).values())
    return []


def _held(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None
