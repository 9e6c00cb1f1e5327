"""`json.dumps` of records with numbers that are not known while capturing: the text is made after the graph.

    json.dumps({"step": step, "loss": loss.item()})         an unknown text (`values/unknown_text.py`)

Only where the call raises nothing, whatever the numbers are: a call with known numbers in their place tells. Plain data
is written at once; a call with anything else is interpreted, as the rest of the standard library is.
"""

from __future__ import annotations

import json
from typing import Any

from lampwork.capture.machine import Answer
from lampwork.capture.machine.values import Enter
from lampwork.capture.values.scalar import Scalar
from lampwork.capture.values.sizes import NUMBER_TYPES
from lampwork.capture.values.unknown_text import UnknownText, unknown_text
from lampwork.capture.values.walk import DEPTH, holds
from lampwork.ir.operations import json_text

_UNKNOWN = frozenset({Scalar, UnknownText, *NUMBER_TYPES})
_PLAIN = frozenset({str, int, float, bool, type(None)})
_CONTAINERS = frozenset({dict, list, tuple})
#: Options that decide how a text looks. `default` and `cls` are code; `allow_nan=False` looks at the numbers.
_LOOKS = frozenset({"ensure_ascii", "indent", "separators", "sort_keys"})
#: Numbers and texts to try a call with: what these do not make it raise, none does.
_EXAMPLES = {float: 0.5, int: 1, bool: True}


class _Other(Exception):
    """There is something else in the record."""


def _dumps(world: Any, *args: Any, **kwargs: Any) -> Any:
    if all(map(world.data.is_text_data, (*args, *kwargs.values()))):
        return json.dumps(*args, **kwargs)
    if len(args) == 1 and holds(args, _UNKNOWN) and kwargs.keys() <= _LOOKS and world.data.is_plain_data(kwargs):
        try:
            record, example = _copied(world, args[0], DEPTH)
            json.dumps(example, **kwargs)
        except (_Other, TypeError, ValueError):
            pass
        else:
            return unknown_text(json_text, record, *kwargs.items())
    return Enter(json.dumps, args, kwargs)


def _copied(world: Any, value: Any, depth: int) -> tuple[Any, Any]:
    """What a record holds now, which the program may change later, and the same with known numbers and texts."""
    kind = type(value)
    if kind is Scalar and value.is_either:
        raise _Other
    if kind is Scalar or kind in NUMBER_TYPES:
        return value, _EXAMPLES[value.kind if kind is Scalar else NUMBER_TYPES[kind]]
    if kind is UnknownText:
        return value, ""
    if kind in _PLAIN:
        return value, value
    if kind not in _CONTAINERS or not depth:
        raise _Other
    world.touch(value)
    if kind is dict:
        if not all(type(key) is str for key in value):
            raise _Other
        pairs = {key: _copied(world, each, depth - 1) for key, each in value.items()}
        return {key: each for key, (each, _) in pairs.items()}, {key: each for key, (_, each) in pairs.items()}
    both = [_copied(world, each, depth - 1) for each in value]
    return kind([each for each, _ in both]), kind([each for _, each in both])


NATIVES: dict[Any, Answer] = {json.dumps: _dumps}
