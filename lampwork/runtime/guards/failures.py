"""The guard failure report: why a guard does not hold, with the path, what was expected and what was found.

    model.training was True, is now False
    x shape was (4, 8), is now (5, 8)

These are for messages and for cold paths; `compile.py` compiles what calls check.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import FunctionType
from typing import Any

import torch

from lampwork import _torch
from lampwork.ir.dtype import SHORT
from lampwork.ir.guard import Guard
from lampwork.ir.source import Source, State, describe
from lampwork.runtime.guards.interpreter import READ_ERRORS, Scope, dims, read
from lampwork.runtime.guards.rules import rule_of


def why_not(guard: Guard, scope: Scope) -> str:
    """Why `guard` does not hold in `scope`, in words that name the path, what was expected and what was found.

    Empty when it holds.
    """
    try:
        with _quiet(guard.source):
            text = rule_of(guard.test).difference(guard.test, guard.source, scope)
    except READ_ERRORS as error:
        return f"{describe(guard.source)} cannot be read any more ({type(error).__name__}: {error})"
    if not text:
        return ""
    return describe(guard.source) + ("" if text.startswith(".") else " ") + text


def _quiet(source: Source) -> AbstractContextManager[object]:
    """Attributes of tensors are read without calling a subclass's `__torch_function__`. Whether that is called at all
    is a state, which is read as it is around the call."""
    return nullcontext() if isinstance(source, State) else _torch.without_torch_function()


def evaluate(
    guards: Sequence[Guard], reads: Sequence[Source], function: object, args: tuple, kwargs: dict
) -> tuple | None:
    """What the compiled check of `guards` returns, without compiling it: for checks that run once or twice."""
    scope = Scope(function, args, kwargs)
    try:
        for guard in guards:
            with _quiet(guard.source):
                if rule_of(guard.test).difference(guard.test, guard.source, scope):
                    return None
        found = []
        for source in reads:
            with _quiet(source):
                found.append(read(source, scope))
        return tuple(found)
    except READ_ERRORS:
        return None


_PRINTED = (int, float, bool, str, bytes, tuple, type(None), complex, torch.dtype, torch.device, slice, range)


def short(value: Any, limit: int = 60) -> str:
    """`repr` for messages: safe, one line, at most `limit` characters."""
    if issubclass(type(value), torch.Tensor):
        try:
            with _torch.without_torch_function():
                return f"{SHORT.get(str(value.dtype).removeprefix('torch.'), value.dtype)}{dims(tuple(value.shape))}"
        except Exception:
            return "a tensor"
    if type(value) not in _PRINTED:
        if issubclass(type(value), (type, FunctionType)):
            return f"{value.__module__}.{value.__qualname__}"
        if not issubclass(type(value), enum.Enum):
            return f"a {type(value).__module__}.{type(value).__qualname__}"
    if type(value) is tuple:
        return _short_tuple(value, limit)
    text = repr(value).replace("\n", " ")
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _short_tuple(values: tuple, limit: int) -> str:
    """As `short`; what is not printed is not made into text: printing hundreds of tensors takes a second."""
    text = "("
    for index, each in enumerate(values):
        text += f"{short(each, limit)}{', ' if index + 1 < len(values) else ',' if len(values) == 1 else ''}"
        if len(text) >= limit:
            return text[: limit - 3] + "..."
    return text + ")" if len(text) < limit else text[: limit - 3] + "..."


def first_failure(guards: Sequence[Guard], function: Callable, args: tuple, kwargs: dict) -> tuple[Guard, str] | None:
    """The first guard that does not hold for this call, and why in words; None when all hold."""
    scope = Scope(function, args, kwargs)
    for guard in guards:
        reason = why_not(guard, scope)
        if reason:
            return guard, reason
    return None


def explain_failure(guards: Sequence[Guard], function: Callable, args: tuple, kwargs: dict) -> str:
    """The first guard that does not hold for this call, in words with the line that read it; empty when all hold."""
    failed = first_failure(guards, function, args, kwargs)
    return "" if failed is None else in_words(*failed)


def in_words(guard: Guard, reason: str) -> str:
    """What `first_failure` has found, with the line that read it."""
    location = guard.location
    return reason + (f" (read at {location.file}:{location.line})" if location.file else "")
