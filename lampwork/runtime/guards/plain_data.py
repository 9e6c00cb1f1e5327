"""Equality of plain data: the domain of `Equals`. Nothing here runs code of the program."""

from __future__ import annotations

import enum
import math
import re
from typing import Any

import torch


def same_value(value: Any, expected: Any) -> bool:
    """Same type and equal, by the rules of `Equals`: NaN equals NaN, 0.0 differs from -0.0, True differs from 1."""
    kind = type(expected)
    if type(value) is not kind:
        return False
    if value is expected:
        return True
    if kind is float:
        return _same_float(value, expected)
    if kind is complex:
        return _same_float(value.real, expected.real) and _same_float(value.imag, expected.imag)
    if kind is range:  # ranges of the same numbers are equal, whatever they end at
        return (value.start, value.stop, value.step) == (expected.start, expected.stop, expected.step)
    if kind in (int, str, bytes, torch.Size, torch.device, type(Ellipsis), re.Pattern):
        return value == expected
    if isinstance(expected, tuple):
        return tuple.__len__(value) == tuple.__len__(expected) and all(
            same_value(left, right) for left, right in zip(tuple.__iter__(value), tuple.__iter__(expected))
        )
    if kind is frozenset:
        return len(value) == len(expected) and {typed(each) for each in value} == {typed(each) for each in expected}
    if kind is slice:
        return all(same_value(getattr(value, part), getattr(expected, part)) for part in ("start", "stop", "step"))
    if kind.__module__ == "numpy":
        return value.tobytes() == expected.tobytes()
    if isinstance(expected, enum.Enum):
        return False  # members are singletons
    return False


def _same_float(value: float, expected: float) -> bool:
    if math.isnan(expected):
        return math.isnan(value)
    return value == expected and math.copysign(1.0, value) == math.copysign(1.0, expected)


def typed(value: object) -> Any:
    """What stands for `value` in a set of constants that are compared by `same_value`."""
    kind = type(value)
    return (kind.__name__, repr(value)) if kind in (float, complex, tuple, frozenset, range) else (kind, value)
