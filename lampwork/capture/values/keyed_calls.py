"""Native functions that are given a symbol: what they hash or look into must be a number, what they only put away stays
a symbol."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch

from lampwork.capture.natives.effect_classes import EFFECTS, WRITERS
from lampwork.capture.outside.plain import bound_owner
from lampwork.capture.outside.tensor_inputs import is_tensor_function

#: Methods whose first argument is a key, and those that fill a dict from keywords and one mapping, or one of pairs.
_BY_KEY = frozenset({"get", "pop", "setdefault", "__getitem__", "__setitem__", "__delitem__", "__contains__"})
_FILLS = frozenset({"update", "__init__", "__ior__"})
_SEQUENCES = (list, tuple)


def takes_symbols(function: Any) -> bool:
    """Whether a native function is one of tensors, or looks at no element of what it is given."""
    if is_tensor_function(function) or isinstance(function, type(torch.FloatTensor)):
        return True
    if type(function) is types.BuiltinFunctionType:
        if function.__self__ is tuple and function.__name__ == "__new__":
            return True  # what named tuples are made by
        owner = bound_owner(function)
        if owner is not None:
            function = getattr(type(owner), function.__name__, None)
    try:
        return EFFECTS.get(function) in ("holds", "method", "identity")
    except TypeError:  # one that cannot be hashed
        return False


def settle_keys(
    function: Any, args: tuple, kwargs: dict[str, Any], settle: Callable[[Any], Any]
) -> tuple[tuple, dict[str, Any]]:
    """The arguments of `function` with everything settled but the values that a dict is given, or gives back.

    `settle` makes of a symbol, or a list or tuple with symbols, the number it is.

        table.update(rate=s0)          as it is
        table.update([(s0, s1)])       [(3, s1)]
        table.setdefault(s0, s1)       3, s1
        cosine(s0)                     3: all of it
    """
    bound = 0
    kind: Any = None
    if type(function) is types.BuiltinFunctionType:
        kind = type(bound_owner(function))
    elif type(function) in (types.MethodDescriptorType, types.WrapperDescriptorType):
        kind, bound = function.__objclass__, 1
    if kind is not None and issubclass(kind, dict):
        owner, rest = args[:bound], args[bound:]
        if function.__name__ in _BY_KEY:
            return (*owner, *map(settle, rest[:1]), *rest[1:]), {name: settle(each) for name, each in kwargs.items()}
        if function.__name__ in _FILLS:
            return (*owner, *(_pairs(each, settle) for each in rest)), kwargs
    if type(function) is types.BuiltinFunctionType and function in WRITERS:
        return tuple([_in_place(each, settle) for each in args]), kwargs
    return tuple(map(settle, args)), {name: settle(value) for name, value in kwargs.items()}


def _in_place(value: Any, settle: Callable[[Any], Any]) -> Any:
    """As `settle`, for native code that changes or keeps what it is given: lists stay the objects that they are."""
    if type(value) is not list:
        return settle(value)
    for place, each in enumerate(value):
        known = _in_place(each, settle)
        if known is not each:
            value[place] = known
    return value


def _pairs(value: Any, settle: Callable[[Any], Any]) -> Any:
    if type(value) not in _SEQUENCES:
        return settle(value)
    return type(value)(
        type(pair)((settle(pair[0]), *pair[1:])) if type(pair) in _SEQUENCES and pair else settle(pair)
        for pair in value
    )
