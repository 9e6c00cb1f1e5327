"""Texts, those among them that are not known while the program is captured (`unknown_text.py`)."""

from __future__ import annotations

import operator
import re
import string
from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.machine import Answer, World
from lampwork.capture.machine.natives import INTRINSICS
from lampwork.capture.machine.operators import IN_PLACE
from lampwork.capture.outside.overlay import Break
from lampwork.capture.outside.plain import HEAP_TYPE
from lampwork.capture.record.fake import TENSOR_KINDS, Fake
from lampwork.capture.values.family import HANDS_ON, Family, StandInFamily
from lampwork.capture.values.percent import percent
from lampwork.capture.values.scalar import Scalar
from lampwork.capture.values.sizes import settled
from lampwork.capture.values.unbacked_numbers import item
from lampwork.capture.values.unknown_array import UnknownArray
from lampwork.capture.values.unknown_text import UnknownText, formatted, joined, refused, text_of_tensor, unknown_text
from lampwork.capture.values.walk import holds

#: The text of these depends on what tensors hold, or on numbers that vary.
UNKNOWN = frozenset({UnknownText, Scalar, UnknownArray, Fake})
_TEXTS = frozenset({str, bytes, UnknownText})
_FORMATS = frozenset({str, bytes})
_CONVERSION = re.compile(r"%(?:\([^)]*\))?[#0\- +]*[\d*]*(?:\.[\d*]+)?[hlL]?(.)")


class TextFamily(StandInFamily):
    """Texts, those that are not known among them."""

    stand_ins = frozenset({UnknownText})

    def has(self, cls: type) -> bool:
        return cls in _TEXTS

    def example(self, value: Any) -> Any:
        return "" if type(value) is UnknownText else value

    def binary(self, op: Any, left: Any, right: Any) -> Any:
        if op is operator.mod and type(left) in _FORMATS:
            if type(left) is str and holds(right, UNKNOWN):
                return self._percent(left, right)
            if not self.world.data.is_data(right) and not issubclass(type(right), type(left)):
                return percent(self.world, left, right)
            known = settled(right) if self.world.has_symbols else right
            return HANDS_ON if known is right else self.world.binary_op(op, left, known)
        if type(left) is not UnknownText and type(right) is not UnknownText:
            return HANDS_ON
        if op is operator.add and isinstance(left, str) and isinstance(right, str):
            return joined([left, right])
        return self._refused_beside(left)

    def inplace(self, op: Any, left: Any, right: Any) -> Any:
        plain = IN_PLACE[op]
        if type(left) in _TEXTS and (plain is operator.add or plain is operator.mod):  # texts have nothing in place
            return self.binary(plain, left, right)
        return self._refused_beside(left) if UnknownText in (type(left), type(right)) else HANDS_ON

    def compare(self, op: Any, left: Any, right: Any) -> Any:
        return self._refused_beside(left) if UnknownText in (type(left), type(right)) else HANDS_ON

    def contains(self, item: Any, container: Any) -> Any:
        if type(container) is UnknownText or (type(item) is UnknownText and isinstance(container, str)):
            raise refused()
        return HANDS_ON

    def _refused_beside(self, left: Any) -> Any:
        """An object on the left may have an operator of its own, which takes any text; nothing else does."""
        kind = type(left)
        if kind.__flags__ & HEAP_TYPE and kind is not UnknownText and kind not in TENSOR_KINDS:
            return HANDS_ON
        raise refused()

    # -- its text

    def kind(self, value: Any) -> type:
        return str if type(value) is UnknownText else type(value)

    def text(self, value: Any, function: Any) -> Any:
        if type(value) is not UnknownText:
            return HANDS_ON
        return value if function is str else unknown_text(function, value)

    def format(self, value: Any, spec: Any) -> Any:
        if type(value) is not UnknownText:
            return HANDS_ON
        return value if type(spec) is str and not spec else formatted(value, spec, "x")

    # -- as a container

    def truth(self, value: Any) -> bool:
        return World.truth(self.world, self._known(value))

    def length(self, value: Any) -> int:
        return World.length(self.world, self._known(value))

    def get_item(self, container: Any, key: Any) -> Any:
        return Family.get_item(self, self._known(container), key)

    def iterate(self, value: Any) -> Any:
        return World.get_iter(self.world, self._known(value))

    def iterable(self, value: Any) -> Any:
        return World.native_iterable(self.world, self._known(value))

    def unpacked(self, value: Any) -> Any:
        return self._known(value)

    def load_attr(self, value: Any, name: str) -> Any:
        # The methods of an unknown text refuse, when they are called.
        return str if name == "__class__" and type(value) is UnknownText else super().load_attr(value, name)

    def _known(self, value: Any) -> Any:
        if type(value) is UnknownText:
            raise refused()
        return value

    def _percent(self, text: str, right: Any) -> str:
        """`text % right`. Conversions that fail for some numbers, or none, are not for the graph."""
        conversions = [each for each in _CONVERSION.findall(text) if each != "%"]
        values = right if isinstance(right, tuple) else (right,)
        if isinstance(right, dict) or not all(each in "sr" or each in "feEgGdi" for each in conversions):
            raise refused()
        if len(conversions) != len(values) or "*" in text or "%(" in text:
            raise refused()
        made = []
        for conversion, value in zip(conversions, values):
            if conversion in "sr":
                made.append(self.world.machine.call(str if conversion == "s" else repr, (value,)))
                continue
            if type(value) is Fake:
                value = item(self.world.recorder, value) if value.numel() == 1 else value
            if type(value) not in (Scalar, int, float, bool):
                raise refused()
            if conversion in "di" and getattr(value, "kind", int) is float:
                raise refused()  # infinite ones have no integer
            made.append(value)
        plain = re.sub(r"(%[#0\- +]*[\d]*(?:\.[\d]+)?[hlL]?)r", r"\1s", text)
        return unknown_text(operator.mod, plain, tuple(made))


def _shown(world: Any, tensor: Any, *args: Any, **kwargs: Any) -> str:
    if type(tensor) in TENSOR_KINDS:
        if kwargs.get("tensor_contents") is not None or args:
            raise refused()
        return text_of_tensor(world, tensor)
    return torch.Tensor.__repr__(tensor, *args, **kwargs)


def _set_options(world: Any, *args: Any, **kwargs: Any) -> None:
    raise Break(  # texts are made after the graph, under the options in force there
        "native-call", "how tensors are shown is changed", "Set it outside the compiled function."
    )


def _format_tensor(world: Any, tensor: Any, *args: Any) -> str:
    if type(tensor) in TENSOR_KINDS:
        return world.families.tensor.formatted(tensor, *args)
    return torch.Tensor.__format__(tensor, *args)


def _join(world: Any, separator: Any, *args: Any) -> Any:
    if len(args) == 1 and type(args[0]) in (list, tuple):
        parts = list(args[0])
        if UnknownText in (type(separator), *map(type, parts)) and all(isinstance(each, str) for each in parts):
            return joined([each for part in parts for each in (separator, part)][1:])
    return INTRINSICS[str.join](world, separator, *args)


def _format_text(world: Any, text: Any, *args: Any, **kwargs: Any) -> Any:
    """`text.format(...)`: where something unknown is written, field by field."""
    if type(text) is not str or not (holds(args, UNKNOWN) or holds(kwargs, UNKNOWN)):
        return world.call_native(str.format, (text, *args), kwargs)
    parts: list[str] = []
    automatic = 0
    for before, field, spec, conversion in string.Formatter().parse(text):
        parts.append(before)
        if field is None:
            continue
        if not field:
            field = str(automatic)
            automatic += 1
        if "{" in (spec or "") or not (field.isdecimal() or field.isidentifier()):
            raise refused()
        value = args[int(field)] if field.isdecimal() else kwargs[field]
        if conversion:
            value = world.machine.call({"s": str, "r": repr, "a": ascii}[conversion], (value,))
        parts.append(world.machine.call(format, (value, spec or "")))
    return joined(parts)


#: Tensors have a text of our own: PyTorch's functions must not run on stand-ins for tensors. They stop half-way, and
#: what they switched off for the thread stays off while the exception lives.
NATIVES: dict[Any, Answer] = {
    torch.Tensor.__repr__: _shown,
    _torch.tensor_text: _shown,
    torch.Tensor.__format__: _format_tensor,
    torch.set_printoptions: _set_options,
    str.join: _join,
    str.format: _format_text,
}
