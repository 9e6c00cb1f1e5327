"""Text made of what tensors hold, and of numbers that vary from call to call: `f"{mask.sum()} tokens at {lr:.1e}"`.

Nobody knows it while the program is captured. It may be made, put together, stored, returned and printed: it is made
anew behind the graph on every call. Whatever looks at it breaks the graph.
"""

from __future__ import annotations

import operator
import re
import string
from dataclasses import dataclass
from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.machine import World
from lampwork.capture.machine.operators import IN_PLACE
from lampwork.capture.outside.overlay import Break
from lampwork.capture.outside.plain import HEAP_TYPE
from lampwork.capture.record.fake import TENSOR_KINDS, Fake
from lampwork.capture.values.arrays import UnknownArray
from lampwork.capture.values.family import HANDS_ON, Family, StandInFamily
from lampwork.capture.values.numbers import BackedNumber
from lampwork.capture.values.sizes import settled
from lampwork.capture.values.unbacked_numbers import UnbackedNumber, item
from lampwork.ir import operations


@dataclass(frozen=True)
class Piece:
    """The text that `function(*args)` gives; `args` are plain data, unknown numbers and texts, and tensors that nobody
    writes."""

    function: Any
    args: tuple


class UnknownText(str):
    """A text that cannot be looked at: all that `str` does breaks the graph. `pieces`: texts and `Piece`s."""

    __slots__ = ("pieces",)
    pieces: tuple[str | Piece, ...]


def _refused() -> Break:
    return Break(
        "data-dependent", "text made of a tensor's contents is used",
        "Make the text outside the compiled function.",
    )  # fmt: skip


def _refusal(name: str) -> Any:
    """A method that breaks the graph; its name says which method of the text runs natively then."""

    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise _refused()

    refuse.__name__ = name
    return refuse


_KEPT = frozenset({
    "__new__", "__init__", "__class__", "__getattribute__", "__setattr__", "__delattr__", "__init_subclass__",
    "__subclasshook__", "__doc__", "__dir__",
})  # fmt: skip
for _name in dir(str):
    if _name not in _KEPT:
        setattr(UnknownText, _name, _refusal(_name))


def unknown_text(function: Any, *args: Any) -> UnknownText:
    return _made((Piece(function, args),))


def joined(parts: Any) -> str:
    """The parts as one text, unknown if one of them is."""
    parts = list(parts)
    if UnknownText not in map(type, parts):
        return "".join(parts)
    pieces: list[str | Piece] = []
    for part in parts:
        for piece in part.pieces if type(part) is UnknownText else (part,):
            if type(piece) is str and pieces and type(pieces[-1]) is str:
                pieces[-1] += piece
            elif piece != "":
                pieces.append(piece)
    return _made(tuple(pieces))


def _made(pieces: tuple[str | Piece, ...]) -> UnknownText:
    text = UnknownText()
    text.pieces = pieces
    return text


def is_unknown(value: Any) -> bool:
    """Whether the text of `value` depends on what tensors hold."""
    return type(value) in (UnknownText, UnbackedNumber, BackedNumber, UnknownArray, Fake)


def holds_unknown(value: Any, depth: int = 6) -> bool:
    if is_unknown(value):
        return True
    if depth and isinstance(value, (list, tuple, set, frozenset)):
        return any(holds_unknown(each, depth - 1) for each in value)
    return bool(depth) and isinstance(value, dict) and any(holds_unknown(each, depth - 1) for each in value.values())


# Texts of single values -----------------------------------------------------------------------------------------------


def text_of(world: Any, value: Any, function: Any = str) -> str:
    """`str(value)` or `repr(value)` of an unknown text, an unknown number or a tensor."""
    kind = type(value)
    if kind is UnknownText:
        return value if function is str else unknown_text(function, value)
    if kind is UnbackedNumber or kind is BackedNumber:
        return unknown_text(function, value)
    if kind is UnknownArray:
        return unknown_text(function, UnknownArray(snapshot(world, value.tensor), value.scalar))
    return _text_of_tensor(world, value)


def _text_of_tensor(world: Any, tensor: Any) -> str:
    shown = snapshot(world, tensor)
    text = unknown_text(repr, shown)
    return joined(["Parameter containing:\n", text]) if tensor.real_class is torch.nn.Parameter else text


def snapshot(world: Any, tensor: Any) -> Fake:
    """A tensor that holds, and shows, what this one does at this point of the program."""
    if (
        type(tensor) is not Fake
        or tensor.is_conj()
        or tensor.is_neg()
        or not issubclass(torch.nn.Parameter, tensor.real_class)
        or "default_dtype" in world.written_state  # a text names no default type: it is made under the last one
    ):
        raise _refused()
    world.shows_tensors = True
    if tensor.requires_grad and not tensor.is_leaf:  # its history is shown, too
        raise _refused()
    with torch.no_grad():
        shown = tensor.detach().clone()
    return shown.requires_grad_() if tensor.requires_grad else shown


def formatted(world: Any, value: Any, spec: Any) -> str:
    """`format(value, spec)` of an unknown text, an unknown number or a tensor."""
    if type(spec) is not str:
        raise _refused()
    if type(value) is Fake:
        if value.dim() or value.real_class is not torch.Tensor:
            if spec:
                raise TypeError(f"unsupported format string passed to {value.real_class.__name__}.__format__")
            return _text_of_tensor(world, value)
        value = item(world.recorder, value)
        if type(value) is not UnbackedNumber:
            return format(value, spec)
    if type(value) is UnknownArray:
        if not value.scalar:
            if spec:
                raise _refused()
            return text_of(world, value)
        format(value.kind(1), spec)
        return unknown_text(operations.formatted, value, 0, spec)
    if not spec and type(value) is UnknownText:
        return value
    if spec.endswith("c"):
        raise _refused()
    sample = "x" if type(value) is UnknownText else 1.0 if type(value) is BackedNumber else value.kind(1)
    format(sample, spec)  # raises what every number of the kind raises
    return unknown_text(operations.formatted, value, 0, spec)


# Operations on texts --------------------------------------------------------------------------------------------------

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
            if type(left) is str and holds_unknown(right):
                return self._percent(left, right)
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
            raise _refused()
        return HANDS_ON

    def _refused_beside(self, left: Any) -> Any:
        """An object on the left may have an operator of its own, which takes any text; nothing else does."""
        kind = type(left)
        if kind.__flags__ & HEAP_TYPE and kind is not UnknownText and kind not in TENSOR_KINDS:
            return HANDS_ON
        raise _refused()

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
            raise _refused()
        return value

    def _percent(self, text: str, right: Any) -> str:
        """`text % right`. Conversions that fail for some numbers, or none, are not for the graph."""
        conversions = [each for each in _CONVERSION.findall(text) if each != "%"]
        values = right if isinstance(right, tuple) else (right,)
        if isinstance(right, dict) or not all(each in "sr" or each in "feEgGdi" for each in conversions):
            raise _refused()
        if len(conversions) != len(values) or "*" in text or "%(" in text:
            raise _refused()
        made = []
        for conversion, value in zip(conversions, values):
            if conversion in "sr":
                made.append(self.world.machine.call(str if conversion == "s" else repr, (value,)))
                continue
            if type(value) is Fake:
                value = item(self.world.recorder, value) if value.numel() == 1 else value
            if type(value) not in (UnbackedNumber, BackedNumber, int, float, bool):
                raise _refused()
            if conversion in "di" and (type(value) is BackedNumber or getattr(value, "kind", int) is float):
                raise _refused()  # infinite ones have no integer
            made.append(value)
        plain = re.sub(r"(%[#0\- +]*[\d]*(?:\.[\d]+)?[hlL]?)r", r"\1s", text)
        return unknown_text(operator.mod, plain, tuple(made))


def install_text(world: Any) -> None:
    """Registers what gives a tensor's text. PyTorch's own functions must not run on stand-ins for tensors: they stop
    half-way, and what they switched off for the thread stays off while the exception lives."""
    world.add_intrinsic(torch.Tensor.__repr__, _shown)
    world.add_intrinsic(_torch.tensor_text, _shown)
    world.add_intrinsic(torch.Tensor.__format__, _format_tensor)
    world.add_intrinsic(torch.set_printoptions, _set_options)
    for native in (str, repr):
        _extend(world, native)
    before = world.intrinsics[format]
    world.add_intrinsic(
        format,
        lambda world, *args: formatted(world, args[0], args[1] if len(args) == 2 else "")
        if 1 <= len(args) <= 2 and is_unknown(args[0]) else before(world, *args),
    )  # fmt: skip
    world.add_intrinsic(str.join, _join(world.intrinsics[str.join]))
    world.add_intrinsic(str.format, _format_text)


def _shown(world: Any, tensor: Any, *args: Any, **kwargs: Any) -> str:
    if type(tensor) in TENSOR_KINDS:
        if kwargs.get("tensor_contents") is not None or args:
            raise _refused()
        return _text_of_tensor(world, tensor)
    return torch.Tensor.__repr__(tensor, *args, **kwargs)


def _set_options(world: Any, *args: Any, **kwargs: Any) -> None:
    raise Break(  # texts are made behind the graph, under the options in force there
        "native-call", "how tensors are shown is changed", "Set it outside the compiled function."
    )


def _format_tensor(world: Any, tensor: Any, *args: Any) -> str:
    if type(tensor) in TENSOR_KINDS:
        return formatted(world, tensor, *args)
    return torch.Tensor.__format__(tensor, *args)


def _extend(world: Any, native: Any) -> None:
    before = world.intrinsics[native]

    def answer(world: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and is_unknown(args[0]):
            return text_of(world, args[0], native)
        return before(world, *args, **kwargs)

    world.add_intrinsic(native, answer)


def _join(before: Any) -> Any:
    def answer(world: Any, separator: Any, *args: Any) -> Any:
        if len(args) == 1 and type(args[0]) in (list, tuple):
            parts = list(args[0])
            if UnknownText in (type(separator), *map(type, parts)) and all(isinstance(each, str) for each in parts):
                return joined([each for part in parts for each in (separator, part)][1:])
        return before(world, separator, *args)

    return answer


def _format_text(world: Any, text: Any, *args: Any, **kwargs: Any) -> Any:
    """`text.format(...)`: where something unknown is written, field by field."""
    if type(text) is not str or not (holds_unknown(args) or holds_unknown(kwargs)):
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
            raise _refused()
        value = args[int(field)] if field.isdecimal() else kwargs[field]
        if conversion:
            value = world.machine.call({"s": str, "r": repr, "a": ascii}[conversion], (value,))
        parts.append(world.machine.call(format, (value, spec or "")))
    return joined(parts)
