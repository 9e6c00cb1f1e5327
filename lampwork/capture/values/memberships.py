"""Whether a symbolic integer is in a range, or among the few numbers of a set or a dict, as comparisons of the symbol.

    step in range(100, 200)     100 <= s0 < 200
    epoch in {30, 60}           s0 == 30, s0 == 60
    rates.get(epoch, 0.1)       0.1 where `epoch` is no key

So all integers that are not there share an entry. What is hashed instead is one number, and an entry each.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from lampwork.capture.outside.overlay import DictOverlay

if TYPE_CHECKING:
    from lampwork.capture.world import TorchWorld

#: So many keys are compared with a symbol, at most: each is a guard.
_MOST_KEYS = 16
_KEY_VIEW: Any = type({}.keys())
_HASHED = (dict.__contains__, set.__contains__, frozenset.__contains__, _KEY_VIEW.__contains__)
#: Classes of which no value but those of the first three equals an integer.
_NUMBERS: tuple[type, ...] = (int, float, bool)
_KEYS = frozenset({*_NUMBERS, str, bytes, type(None)})


def contains_symbol(world: TorchWorld, item: Any, container: Any) -> bool | None:
    """`item in container` for a symbolic integer, guarded; None where its number is needed for that."""
    if type(container) is range:
        return _in_range(world, item, container)
    if getattr(type(container), "__contains__", None) not in _HASHED:
        return None
    overlay = world.loader.unsettled.get(id(container))
    if type(overlay) is DictOverlay:
        world.loader.dict_keys(overlay)
    else:
        world.touch(container)
    keys = list(container)
    if len(keys) > _MOST_KEYS or not all(type(key) in _KEYS for key in keys):
        return None
    numbers = sorted({int(key) for key in keys if type(key) in _NUMBERS and key == key // 1})
    return any(_holds(world, operator.eq, item, each) for each in numbers)


def _in_range(world: TorchWorld, item: Any, numbers: range) -> bool:
    if not numbers:
        return False
    low, high, step = min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1]), abs(numbers.step)
    if not (_holds(world, operator.ge, item, low) and _holds(world, operator.le, item, high)):
        return False
    if step == 1 or low == high:
        return True
    return _holds(world, operator.eq, world.binary_op(operator.mod, world.binary_op(operator.sub, item, low), step), 0)


def _holds(world: TorchWorld, op: Any, left: Any, right: int) -> bool:
    return world.truth(world.compare_op(op, left, right))
