"""The text of builtin containers that hold objects, or what is not known while capturing."""

from __future__ import annotations

import collections
import sys
from typing import Any

from lampwork.capture.values.text import UNKNOWN
from lampwork.capture.values.unknown_text import joined
from lampwork.capture.values.walk import holds

_BRACKETS: dict[Any, str] = {list: "[]", tuple: "()", set: "{}"}
#: What stands for a container inside itself.
_CYCLIC: dict[Any, str] = {
    list: "[...]", tuple: "(...)", set: "set(...)", dict: "{...}", collections.deque: "[...]",
}  # fmt: skip


def text_of_container(world: Any, value: Any) -> str | None:
    """The text of a builtin container that holds objects, each written by the machine; None for any other value."""
    kind = type(value)
    if (
        kind not in _BRACKETS
        and kind is not dict
        and kind is not collections.OrderedDict
        and kind is not collections.deque
    ):
        return None
    world.touch(value)
    if world.data.is_data(value) and not holds(value, UNKNOWN):
        return None
    if id(value) in world.being_written:
        return _CYCLIC.get(kind, "...")
    world.being_written.add(id(value))
    try:
        return _written(world, value, kind)
    finally:
        world.being_written.discard(id(value))


def _written(world: Any, value: Any, kind: type) -> str:
    call = world.machine.call
    if isinstance(value, dict):
        pairs = list(value.items())
        if kind is dict:
            return _woven("{", [[call(repr, (key,)), ": ", call(repr, (each,))] for key, each in pairs], "}")
        if sys.version_info >= (3, 12):
            texts = [[call(repr, (key,)), ": ", call(repr, (each,))] for key, each in pairs]
            return _woven("OrderedDict({", texts, "})")
        texts = [["(", call(repr, (key,)), ", ", call(repr, (each,)), ")"] for key, each in pairs]
        return _woven("OrderedDict([", texts, "])")
    parts = [[call(repr, (each,))] for each in list(value)]
    if kind is tuple and len(parts) == 1:
        return _woven("(", parts, ",)")
    if kind is collections.deque:
        limit = "" if value.maxlen is None else f", maxlen={value.maxlen}"
        return _woven("deque([", parts, f"]{limit})")
    return _woven(_BRACKETS[kind][0], parts, _BRACKETS[kind][1])


def _woven(before: str, parts: list[list[str]], after: str) -> str:
    """The parts with commas between them, some of which may be unknown while capturing."""
    return joined([before, *[each for part in parts for each in (", ", *part)][1:], after])
