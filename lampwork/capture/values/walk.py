"""The one walk through containers that capture makes to see whether values of some classes are in them.

Looked into are lists, tuples, dicts (what they hold, not their keys) and classes that derive from these; sets, frozen
sets, queues and slices: DEPTH of them inside each other, so that a list which holds itself ends. What the program has
not read of a container from outside is not there yet.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator
from typing import Any

DEPTH = 6
#: Flags of classes that derive from `list`, `tuple` and `dict` (Py_TPFLAGS_LIST_SUBCLASS and so on).
_LIST, _TUPLE, _DICT = 1 << 25, 1 << 26, 1 << 29
_OTHERS = frozenset({set, frozenset, collections.deque})


def _contents(value: Any, kind: type) -> Iterator[Any] | None:
    """What stands in `value`, without running code of its class; None for what is no container."""
    flags = kind.__flags__
    if flags & _TUPLE:
        return tuple.__iter__(value)
    if flags & _LIST:
        return list.__iter__(value)
    if flags & _DICT:
        return iter(dict.values(value))
    if kind in _OTHERS:
        return iter(value)
    return iter((value.start, value.stop, value.step)) if kind is slice else None


def holds(value: Any, kinds: frozenset[type], depth: int = DEPTH) -> bool:
    """Whether `value` is of one of the classes, or a container with such a value in it."""
    kind = type(value)
    if kind in kinds:
        return True
    if not depth:
        return False
    contents = _contents(value, kind)
    return contents is not None and any(holds(each, kinds, depth - 1) for each in contents)


def classes_in(values: Iterable[Any], kinds: frozenset[type] | dict[type, Any], depth: int = DEPTH) -> set[type]:
    """Those of the classes that the values, and what stands in containers among them, are of."""
    found: set[type] = set()
    for each in values:
        kind = type(each)
        if kind in kinds:
            found.add(kind)
        elif depth:
            contents = _contents(each, kind)
            if contents is not None:
                found |= classes_in(contents, kinds, depth - 1)
    return found
