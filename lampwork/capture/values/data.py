"""`Data`: which values native code may look into, through and through."""

from __future__ import annotations

import collections
import re
import types
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy
import torch

from lampwork.capture.outside.plain import DATES, DIGESTS, HEAP_TYPE, PLAIN_TYPES, has_identity_hash, is_plain
from lampwork.capture.record.fake import TENSOR_KINDS
from lampwork.capture.values.key_views import KEY_VIEWS
from lampwork.capture.values.walk import holds
from lampwork.fakes.wrappers import Wrapper

if TYPE_CHECKING:
    from lampwork.capture.outside.load import Loader

#: Pure objects of C classes that hold plain data or loaded values only.
_DATA_TYPES = frozenset({
    *TENSOR_KINDS, *PLAIN_TYPES, torch.finfo, torch.iinfo, type({}.keys()), type({}.values()), type({}.items()),
    bytearray, types.CodeType, torch.SymInt, torch.SymBool, torch.SymFloat, numpy.dtype,
})  # fmt: skip
_CALLED: frozenset[type] = frozenset({FunctionType, type})


class Data:
    """Tells data from objects. Containers from outside that are asked about are loaded whole."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def are_data(self, args: tuple, kwargs: dict[str, Any]) -> bool:
        """Whether all arguments of a call are."""
        return all(map(self.is_data, args)) and all(map(self.is_data, kwargs.values()))

    def is_data(self, value: Any) -> bool:
        """Whether it is plain data, a tensor, or a container of them."""
        kind = type(value)
        if kind in _DATA_TYPES:
            if kind in KEY_VIEWS:
                self.loader.settle(value)
            return kind is not slice or (
                self.is_data(value.start) and self.is_data(value.stop) and self.is_data(value.step)
            )
        if kind in DATES or kind in DIGESTS or kind is memoryview:
            return id(value) not in self.loader.opaque
        if kind is numpy.ndarray:
            return id(value) not in self.loader.opaque and value.dtype.kind in "biufc"
        if id(value) in self.loader.unsettled:
            self.loader.settle(value)
        if kind is list or kind is tuple or isinstance(value, (tuple, set, frozenset, collections.deque)):
            return all(map(self.is_data, value))
        if kind is dict or kind is collections.OrderedDict:
            return all(map(self.is_data, value.values())) and all(map(self.is_data, value))
        if issubclass(kind, Wrapper):
            return True
        if isinstance(value, type):
            return kind.__repr__ is type.__repr__
        return (
            is_plain(value)
            or kind.__module__ == "re"
            or isinstance(value, numpy.generic)
            or (isinstance(value, BaseException) and adds_no_behaviour(kind) and all(map(self.is_data, value.args)))
            or (isinstance(value, (str, int, float, bytes, complex)) and adds_no_behaviour(kind))
        )

    def is_plain_data(self, value: Any) -> bool:
        """As `is_data`, without tensors: comparing and hashing it natively is right."""
        kind = type(value)
        if kind in PLAIN_TYPES:
            return True
        if id(value) in self.loader.unsettled:
            self.loader.settle(value)
        if kind in (list, tuple, set, frozenset, collections.deque):
            return all(map(self.is_plain_data, value))
        if kind is dict or kind is collections.OrderedDict:
            return all(map(self.is_plain_data, value.values())) and all(map(self.is_plain_data, value))
        return is_plain(value) or isinstance(value, (type, FunctionType)) and has_identity_hash(value)

    def is_text_data(self, value: Any) -> bool:
        """Plain data and compiled regular expressions; no functions and classes, which native code would call."""
        return type(value) is re.Pattern or (self.is_plain_data(value) and not holds(value, _CALLED))

    def describe_arguments(self, args: tuple, kwargs: dict[str, Any]) -> str:
        """Those that are no data, in words."""
        bad = [value for value in (*args, *kwargs.values()) if not self.is_data(value)]
        names = sorted({f"a {type(value).__module__}.{type(value).__qualname__}" for value in bad})
        return ", ".join(names) or "no arguments"


def adds_no_behaviour(kind: type) -> bool:
    """Whether a class derived from a builtin one leaves all special methods alone: its instances are data."""
    for cls in kind.__mro__:
        if not cls.__flags__ & HEAP_TYPE:
            return True
        if any(
            type(value) is FunctionType and name.startswith("__") and name not in _MAKING
            for name, value in vars(cls).items()
        ):
            return False
    return True


_MAKING = frozenset({"__new__", "__init__", "__init_subclass__", "__class_getitem__", "__getattr__"})
