"""Operations on texts from outside that no guard fixes yet (`outside/open_text.py`).

names[text], text in names      of a dict from outside: stay open
isinstance(text, str)           of its class: stays open
anything else                   fixes the text, and means what it means of that
"""

from __future__ import annotations

from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from lampwork.capture.machine import World
from lampwork.capture.outside.open_text import OpenText, fixed
from lampwork.capture.outside.overlay import MISSING, DictOverlay, KeysOverlay
from lampwork.capture.outside.plain import HEAP_TYPE
from lampwork.capture.values.family import HANDS_ON, StandInFamily
from lampwork.capture.values.walk import holds

_OPEN = frozenset({OpenText})
#: Native functions that look at the class of what they are given, or put it away.
_LOOKS_AT_NOTHING = frozenset({isinstance, type, issubclass, callable})


class OpenTextFamily(StandInFamily):
    """Texts that stay open as long as they are keys."""

    stand_ins = _OPEN

    def kind(self, value: Any) -> type:
        return str

    def example(self, value: Any) -> Any:
        return value.now if type(value) is OpenText else value

    # -- as a key

    def contains(self, item: Any, container: Any) -> Any:
        if type(item) is OpenText:
            overlay = self._dict(container, "__contains__")
            if overlay is not None:
                return self.world.loader.has_open(overlay, item)
            if self._is_interpreted(container, "__contains__"):
                return HANDS_ON
        return self.world.contains(fixed(item), fixed(container))

    def found(self, container: Any, key: OpenText) -> Any:
        """`container[key]`."""
        overlay = self._dict(container, "__getitem__")
        if overlay is not None:
            value = self.world.loader.read_open(overlay, key)
            if value is not MISSING:
                return value
        elif self._is_interpreted(container, "__getitem__"):
            return World.get_item(self.world, container, key)
        return self.world.get_item(container, key.fixed())

    def _dict(self, container: Any, method: str) -> DictOverlay | None:
        """What stands for a dict from outside whose `method` is the builtin one."""
        overlay = self.world.loader.unsettled.get(id(container))
        if type(overlay) is KeysOverlay and method == "__contains__":
            overlay = overlay.of
        if type(overlay) is not DictOverlay or not self.world.families.container.has_method(overlay.copy, method):
            return None
        return overlay

    def _is_interpreted(self, container: Any, name: str) -> bool:
        """Whether the operator is a function in Python, which is given the text as it is."""
        kind = type(container)
        if not kind.__flags__ & HEAP_TYPE or kind in self.world.families.stand_ins:
            return False
        return type(self.world.class_lookup(kind, name)[1]) is FunctionType

    # -- as a text

    def binary(self, op: Any, left: Any, right: Any) -> Any:
        return self.world.binary_op(op, fixed(left), fixed(right))

    def inplace(self, op: Any, left: Any, right: Any) -> Any:
        return self.world.inplace_op(op, fixed(left), fixed(right))

    def compare(self, op: Any, left: Any, right: Any) -> Any:
        return self.world.compare_op(op, fixed(left), fixed(right))

    def text(self, value: Any, function: Any) -> Any:
        return self.world.machine.call(function, (value.fixed(),))

    def format(self, value: Any, spec: Any) -> Any:
        return self.world.machine.call(format, (value.fixed(), fixed(spec)))

    def convert(self, value: Any, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        return self.world.machine.call(function, (value.fixed(), *args), kwargs)

    def native(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[Any, Any, tuple, dict[str, Any]]:
        return HANDS_ON, function, *closed_call(function, args, kwargs)

    def truth(self, value: Any) -> bool:
        return self.world.truth(value.fixed())

    def length(self, value: Any) -> int:
        return self.world.length(value.fixed())

    def get_item(self, container: Any, key: Any) -> Any:
        return self.world.get_item(container.fixed(), key)

    def iterate(self, value: Any) -> Any:
        return self.world.get_iter(value.fixed())

    def iterable(self, value: Any) -> Any:
        return self.world.native_iterable(value.fixed())

    def unpacked(self, value: Any) -> Any:
        return value.fixed()

    def unary(self, op: Any, value: Any) -> Any:
        return self.world.unary_op(op, value.fixed())

    def load_attr(self, value: Any, name: str) -> Any:
        return str if name == "__class__" else self.world.load_attr(value.fixed(), name)


def closed_call(function: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """The arguments of a call that is not interpreted, with what it may look at fixed."""
    kind = type(function)
    if kind is BuiltinFunctionType and function in _LOOKS_AT_NOTHING:
        return args, kwargs
    if function is type or (kind is MethodType and type(function.__func__) is FunctionType):
        return args, kwargs
    if holds(args, _OPEN):
        args = tuple([fixed(each) for each in args])
    if holds(kwargs, _OPEN):
        kwargs = {name: fixed(each) for name, each in kwargs.items()}
    return args, kwargs
