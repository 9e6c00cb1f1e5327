"""The one walk through containers that capture makes to see whether values of some classes are in them.

Looked into are lists, tuples, dicts (what they hold, not their keys) and classes that derive from these; sets, frozen
sets, queues and slices: DEPTH of them inside each other, so that a list which holds itself ends. What the program has
not read of a container from outside is not there yet.
"""

from __future__ import annotations

import collections
from collections.abc import Container, Iterable
from typing import Any

DEPTH = 6
#: Flags of classes that derive from `list`, `tuple` and `dict` (Py_TPFLAGS_LIST_SUBCLASS and so on).
_LIST, _TUPLE, _DICT = 1 << 25, 1 << 26, 1 << 29
_BY_FLAG = _LIST | _TUPLE | _DICT
_OTHERS = frozenset({set, frozenset, collections.deque, slice})


def _contents(value: Any, kind: type) -> Iterable[Any]:
    """What stands in a container, without running code of its class."""
    flags = kind.__flags__
    if flags & _TUPLE:
        return tuple.__iter__(value)
    if flags & _LIST:
        return list.__iter__(value)
    if flags & _DICT:
        return dict.values(value)
    return (value.start, value.stop, value.step) if kind is slice else value


def holds(value: Any, kinds: frozenset[type], depth: int = DEPTH) -> bool:
    """Whether `value` is of one of the classes, or a container with such a value in it."""
    kind = type(value)
    if kind in kinds:
        return True
    if depth and (kind.__flags__ & _BY_FLAG or kind in _OTHERS):
        return any(holds(each, kinds, depth - 1) for each in _contents(value, kind))
    return False


def classes_in(values: Iterable[Any], kinds: Container[type], depth: int = DEPTH) -> set[type]:
    """Those of the classes that the values, and what stands in containers among them, are of."""
    found: set[type] = set()
    for each in values:
        kind = type(each)
        if kind in kinds:
            found.add(kind)
        elif depth and (kind.__flags__ & _BY_FLAG or kind in _OTHERS):
            found |= classes_in(_contents(each, kind), kinds, depth - 1)
    return found
