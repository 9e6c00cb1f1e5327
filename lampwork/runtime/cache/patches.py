"""Functions of PyTorch and of the interpreter that somebody has replaced: part of every key.

Capture takes some functions for what they are, without reading them. A function *added* under a name that the place
never had is none of them: capture reads it like any other, and guards what it was. Libraries add some at odd times
(transformers gives `torch.nn.Module` a `smart_apply` when the first model is made), and no key may hang on whether they
have yet."""

from __future__ import annotations

import builtins
import functools
import itertools
import operator
import re
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType

import torch

from lampwork import _torch
from lampwork.ir.reference import code_digest


def patches() -> Iterator[tuple[str, str]]:
    """The name and the digest of the code of each function that was replaced."""
    for place in (torch, torch.Tensor, torch.nn.functional, torch.nn.Module, builtins, functools, itertools, operator):
        own = "torch" if place.__name__.startswith("torch") or isinstance(place, type) else place.__name__
        is_own: dict[int, bool] = {}  # by the address of the globals, of which there are few
        for name, value in vars(place).items():
            if type(value) is FunctionType:
                home = value.__globals__
                known = is_own.get(id(home))
                if known is None:
                    known = is_own[id(home)] = str(home.get("__name__")).startswith(own)
                if not known and (place, name) not in _NEVER_ASSUMED and _may_be_its_own(place, name):
                    yield f"patched {place.__name__}.{name}", code_digest(value.__code__)


#: What capture never takes for what it is: a program that calls it breaks there. (lightning replaces it when imported.)
_NEVER_ASSUMED = ((torch, "compile"),)


def _may_be_its_own(place: ModuleType | type, name: str) -> bool:
    """Whether the place has had something under this name since it was imported. Yes where that cannot be known."""
    if isinstance(place, type):
        source = "torch._tensor" if place is torch.Tensor else place.__module__
        return any(name in vars(base) for base in place.__mro__[1:]) or _is_word_of(source, name)
    if not place.__name__.startswith("torch"):
        return True
    return _torch.has_native(name) or hasattr(torch.functional, name) or _is_word_of(place.__name__, name)


@functools.cache
def _is_word_of(module: str, name: str) -> bool:
    """Whether a module's source has the word `name`, as it has each name that it defines; yes where there is none."""
    try:
        with open(sys.modules[module].__file__ or "", encoding="utf-8") as file:
            return re.search(rf"\b{re.escape(name)}\b", file.read()) is not None
    except (AttributeError, KeyError, OSError, UnicodeDecodeError):
        return True
