"""What is known of code objects, for as long as they live.

A program may make functions without end (a lambda in a loop): what is remembered of their code must go with it.
"""

from __future__ import annotations

import weakref
from types import CodeType
from typing import Generic, TypeVar

Value = TypeVar("Value")


class CodeCache(Generic[Value]):
    """Values by the identity of a code object: equal ones may differ in file name. No value may refer to its code."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref, Value]] = {}

    def get(self, code: CodeType) -> Value | None:
        found = self._entries.get(id(code))
        return None if found is None else found[1]

    def put(self, code: CodeType, value: Value) -> Value:
        key = id(code)
        self._entries[key] = (weakref.ref(code, lambda gone: self._entries.pop(key, None)), value)
        return value

    def __len__(self) -> int:
        return len(self._entries)
