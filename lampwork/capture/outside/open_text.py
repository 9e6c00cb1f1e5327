"""`OpenText`: a text from outside that names what the program reads, and of which no guard says more than its class.

    layers[self.chosen](x)      guards on, and inputs from, `layers[self.chosen]`, whatever the name is

The loader gives one for a text that was found to differ between calls. As a key of a dict from outside it stays open:
what lies there is found, on each call, at the key that the text is then. Any other use fixes the text by a guard. All
that `str` does is such a use, so what is forgotten here costs another entry, and no wrong answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lampwork.ir.source import Source


class OpenText(str):
    """A text at `source`. `now`: what it is in this call; `fix` adds the guard that it is this one."""

    __slots__ = ("now", "source", "fix")
    now: str
    source: Source
    fix: Callable[[Source, str], None]

    def fixed(self) -> str:
        """The text as plain data, guarded from here on."""
        self.fix(self.source, self.now)
        return self.now

    def __radd__(self, other: str) -> str:  # C would put them together without asking
        return other + self.fixed()


def open_text(raw: str, source: Source, fix: Callable[[Source, str], None]) -> OpenText:
    text = OpenText(raw)
    text.now, text.source, text.fix = raw, source, fix
    return text


def _fixing(name: str) -> Any:
    def method(self: OpenText, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.fixed(), name)(*args, **kwargs)

    method.__name__ = name
    return method


#: What tells nothing of a text, and is needed to hold one.
_KEPT = frozenset({
    "__new__", "__init__", "__class__", "__getattribute__", "__setattr__", "__delattr__", "__init_subclass__",
    "__subclasshook__", "__doc__", "__dir__", "__getstate__", "__reduce__", "__reduce_ex__", "__getnewargs__",
})  # fmt: skip
for _name in dir(str):
    if _name not in _KEPT:
        setattr(OpenText, _name, _fixing(_name))


def fixed(value: Any) -> Any:
    """The value with texts in it fixed and plain, to any depth of lists, tuples and dicts: what native code is given.

    Lists and dicts stay the objects that they are.
    """
    return _fixed(value, ())


def _fixed(value: Any, around: tuple[int, ...]) -> Any:
    kind = type(value)
    if kind is OpenText:
        return value.fixed()
    if kind not in (list, tuple, dict) or id(value) in around:
        return value
    around = (*around, id(value))
    if kind is tuple:
        parts = [_fixed(each, around) for each in value]
        return value if all(one is other for one, other in zip(parts, value)) else tuple(parts)
    for place, each in list(enumerate(value) if kind is list else value.items()):
        known = _fixed(each, around)
        if known is not each:
            value[place] = known
    return value
