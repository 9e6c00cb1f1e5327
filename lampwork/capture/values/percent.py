"""`text % values` where some of the values are objects, whose special methods only the machine may run.

"%s of %d" % (point, count)     ->    "%s of %d" % (str(point), int(count)), each call interpreted
"""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, Any

from lampwork.capture.machine import UNBOUND
from lampwork.capture.outside.overlay import Break
from lampwork.capture.values.special_methods import index_of, is_object

if TYPE_CHECKING:
    from lampwork.capture.world import TorchWorld

_CONVERSION = r"%(?:\((?P<name>[^()]*)\))?(?P<how>[#0\- +]*(?:\*|\d*)(?:\.(?:\*|\d*))?)[hlL]?(?P<kind>.)"
_CONVERSIONS: Any = {
    str: re.compile(_CONVERSION, re.DOTALL),
    bytes: re.compile(_CONVERSION.encode(), re.DOTALL),
}

#: Letters of conversions, what converts an object for them, what needs no conversion, and the methods that are asked.
_ASKS: tuple[tuple[str, Any, type, tuple[str, ...]], ...] = (
    ("sb", bytes, bytes, ("__bytes__",)),
    ("diu", int, int, ("__int__", "__index__", "__trunc__")),
    ("eEfFgG", float, float, ("__float__", "__index__")),
)


def percent(world: TorchWorld, text: Any, right: Any) -> Any:
    """`text % right` of a text or bytes. Raises `Break` for names in parentheses of their own."""
    is_text = isinstance(text, str)
    found: Any
    values = list(tuple.__iter__(right)) if isinstance(right, tuple) else [right]
    made: list[Any] = []
    taken, end, parts = 0, 0, []
    for found in _CONVERSIONS[str if is_text else bytes].finditer(text):
        name, how, kind = found["name"], found["how"], found["kind"]
        parts.append(text[end : found.start()])
        end = found.end()
        letter = kind if is_text else kind.decode("latin-1")
        if letter == "%":
            parts.append(found[0])
            continue
        if letter == "(":
            raise Break("native-argument", "a text is formatted with names that have parentheses")
        stars = how.count("*" if is_text else b"*")
        needed = stars + (name is None)
        if taken + needed > len(values):  # which words the error
            return text % tuple(map(_known, values))
        made += values[taken : taken + stars]
        taken += needed
        if name is not None:
            taken = len(values)
            value = world.machine.call(operator.getitem, (right, name))
        else:
            value = values[taken - 1]
        value, letter = _converted(world, value, letter, is_text)
        made.append(value)
        parts.append(("%" + how + letter) if is_text else b"%" + how + letter.encode())
    parts.append(text[end:])
    plain = ("" if is_text else b"").join(parts)
    if isinstance(right, tuple) or (not made and not hasattr(type(right), "__getitem__")):
        made += map(_known, values[taken:])
    return plain % tuple(made)


def _known(value: Any) -> Any:
    """What an error is told of in place of an object."""
    return object() if is_object(value) else value


def _converted(world: TorchWorld, value: Any, letter: str, is_text: bool) -> tuple[Any, str]:
    """The value as native code may be given it, and the letter of its conversion."""
    call = world.machine.call
    if letter in "sra" and (is_text or letter != "s"):
        if letter == "s" and type(value) is str:
            return value, "s"
        shown = call({"s": str, "r": repr, "a": ascii}[letter], (value,))
        return (shown, "s") if is_text else (shown.encode("ascii", "backslashreplace"), "s")
    if not is_object(value):
        return value, letter
    for letters, function, kind, names in _ASKS:
        if letter in letters:
            # Native code takes a number of a derived class for what it holds, and refuses what has no such method.
            is_asked = not issubclass(type(value), kind) and any(
                world.python_special(value, name) is not UNBOUND for name in names
            )
            return (call(function, (value,)) if is_asked else value), letter
    return index_of(world, value), letter
