"""Text made of what tensors hold, and of numbers that vary from call to call: `f"{mask.sum()} tokens at {lr:.1e}"`.

Nobody knows it while the program is captured. It may be made, put together, stored, returned and printed: it is made
anew after the graph on every call. Whatever looks at it breaks the graph.
"""

from __future__ import annotations

from typing import Any

import torch

from lampwork.capture.outside.overlay import Break
from lampwork.capture.record.fake import Fake
from lampwork.ir import operations
from lampwork.ir.record import record


@record
class Piece:
    """The text that `function(*args)` gives; `args` are plain data, unknown numbers and texts, and tensors that nobody
    writes."""

    function: Any
    args: tuple


class UnknownText(str):
    """A text that cannot be looked at: all that `str` does breaks the graph. `pieces`: texts and `Piece`s."""

    __slots__ = ("pieces",)
    pieces: tuple[str | Piece, ...]


def refused() -> Break:
    return Break(
        "data-dependent", "text made of a tensor's contents is used",
        "Make the text outside the compiled function.",
    )  # fmt: skip


def _refusal(name: str) -> Any:
    """A method that breaks the graph; its name says which method of the text runs natively then."""

    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise refused()

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


# Texts of single values -----------------------------------------------------------------------------------------------


def formatted(value: Any, spec: Any, example: Any) -> UnknownText:
    """`format(value, spec)` of an unknown text or number. `example` is a known one: what it raises, all of them do."""
    if type(spec) is not str or spec.endswith("c"):
        raise refused()
    format(example, spec)
    return unknown_text(operations.formatted, value, 0, spec)


def text_of_tensor(world: Any, tensor: Any) -> str:
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
        or "default_dtype" in world.process.written  # a text names no default type: it is made under the last one
    ):
        raise refused()
    world.process.shows_tensors = True
    if tensor.requires_grad and not tensor.is_leaf:  # its history is shown, too
        raise refused()
    with torch.no_grad():
        shown = tensor.detach().clone()
    return shown.requires_grad_() if tensor.requires_grad else shown
