"""The order of a set, which is seen where a program goes over one.

for name in {"q", "k", "v"}: ...     texts: another process has them in another order
[x * n for n in sizes]               a set from outside: equal sets may differ in it
"""

from __future__ import annotations

import enum
import operator
from typing import Any

from lampwork import _torch
from lampwork.capture.outside.overlay import Break
from lampwork.capture.outside.plain import is_plain

_SAME_EVERYWHERE = (int, float, complex)
_TEXTS = (str, bytes, enum.Enum)
#: Functions that give the same for every order of a set.
_ORDERLESS = frozenset({len, min, max, any, all, bool, isinstance, issubclass, type, callable, id})
#: Methods of sets and other containers of which that is true, or that keep a set as the object that it is.
_METHODS = frozenset({
    "__contains__", "__len__", "issubset", "issuperset", "isdisjoint", "__eq__", "__ne__", "__le__", "__lt__", "__ge__",
    "__gt__", "add", "discard", "remove", "clear", "append", "appendleft", "insert", "get", "setdefault", "__setitem__",
    "__getitem__", "index", "count",
})  # fmt: skip
#: Those that ask others for their elements, in no order.
_TAKES_AWAY = frozenset({"difference", "difference_update", "__sub__", "__isub__"})


def in_order(world: Any, values: Any) -> Any:
    """`values`, or, of a set, something that gives its elements in the set's own order: the order is guarded.

    Raises `Break` where nobody knows the order before the call: of a set from outside that the program has changed.
    """
    if not isinstance(values, (set, frozenset)) or len(values) < 2:
        return values
    base: Any = set if isinstance(values, set) else frozenset
    elements = tuple(base.__iter__(values))
    loader = world.loader
    overlay = loader.sets.get(id(values))
    found = values
    if overlay is not None:
        if loader.set_settle(overlay) != overlay.base:
            raise Break("opaque-value", "a set from outside that the program has changed is gone over")
        if len(elements) != len(overlay.order) or any(map(operator.is_not, elements, overlay.order)):
            found = elements = overlay.order  # it is larger inside than its elements need
        named = tuple(map(_torch.named_operator, elements))
        if all(map(is_plain, named)):  # objects have been loaded by their places
            world.guards.keys_are(overlay.source, named)
    elif loader.origin(values) is not None:
        world.guards.keys_are(loader.origin(values).source, elements)
    _guard_hashes(world, elements)
    return found


def in_any_order(world: Any, values: Any) -> list[Any] | None:
    """The elements of a set that are of one class with one order (`sorted` gives the same for all that are equal)."""
    if type(values) not in (set, frozenset):
        return None
    elements = list(world.touch(values))
    kinds = set(map(type, elements))
    return elements if kinds == {int} or kinds == {str} else None


def see_order(world: Any, function: Any, effect: str, args: tuple, kwargs: dict[str, Any]) -> tuple:
    """The arguments of a native function, with the order of sets among them guarded if its result depends on it."""
    if not any(isinstance(each, (set, frozenset)) for each in args):
        return args
    name = getattr(function, "__name__", "")
    if (function in _ORDERLESS and not kwargs) or name in _METHODS or effect == "identity":
        return args
    if name in _TAKES_AWAY:
        return (in_its_own_order(world, args[0]), *args[1:])
    if function in (set, frozenset):
        return (in_its_own_order(world, args[0]), *args[1:])
    if isinstance(function, type) or effect not in ("method", "keyed", "compares"):
        return tuple([in_order(world, each) for each in args])
    return (in_its_own_order(world, args[0]), *[in_order(world, each) for each in args[1:]])


def in_its_own_order(world: Any, values: Any) -> Any:
    """`values`, a set that what is done next takes as it lies in memory. Raises `Break` where nobody knows that."""
    if in_order(world, values) is not values:
        raise Break("opaque-value", "a set from outside is used, which is larger inside than its elements need")
    return values


def _guard_hashes(world: Any, elements: tuple) -> None:
    """Guards what the order follows from, beside the elements: how this process hashes them."""
    for each in elements:
        parts = each if isinstance(each, (tuple, frozenset)) else (each,)
        for part in parts:
            if isinstance(part, _TEXTS):
                world.process.read("text_hashes")
            elif not isinstance(part, _SAME_EVERYWHERE):
                world.process.read("addresses")
