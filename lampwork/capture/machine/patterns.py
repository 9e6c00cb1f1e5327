"""`match` statements (Python/ceval.c: match_class, match_keys)."""

from __future__ import annotations

from typing import Any

from ..bytecode.decode import VERSION
from .private import keep_builtins
from .values import UNBOUND, Part, is_a

keep_builtins(globals())

# Classes whose single positional sub-pattern is the subject itself (Py_TPFLAGS_... _MATCH_SELF).
_MATCH_SELF = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)
_CLASS = "type" if VERSION == (3, 11) else "class"
_MAPPING, _SEQUENCE = 1 << 6, 1 << 5


class Patterns(Part):
    machine: Any

    def match_mapping(self, subject: Any) -> bool:
        return bool(type(subject).__flags__ & _MAPPING)

    def match_sequence(self, subject: Any) -> bool:
        return bool(type(subject).__flags__ & _SEQUENCE)

    def match_keys(self, subject: Any, keys: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The values under the keys, None if one is missing.  Uses the subject's `get`."""
        if not keys:
            return ()
        seen: set[Any] = set()
        values = []
        get = self.attribute(subject, "get")
        for key in keys:
            if key in seen:
                raise ValueError(f"mapping pattern checks duplicate key ({key!r})")
            seen.add(key)
            value = self.machine.call(get, (key, UNBOUND))
            if value is UNBOUND:
                return None
            values.append(value)
        return tuple(values)

    def match_class(self, subject: Any, cls: Any, count: int, names: tuple[str, ...]) -> tuple[Any, ...] | None:
        """The attributes for `cls(count positional patterns, *names)`, None if the subject does not match."""
        if not is_a(cls, type):
            raise TypeError(f"called match pattern must be a {_CLASS}")
        if not self.machine.call(isinstance, (subject, cls)):
            return None
        seen: set[str] = set()
        values: list[Any] = []
        if count:
            match_self = False
            allowed: Any = self.attribute_or(cls, "__match_args__", UNBOUND)
            if allowed is UNBOUND:
                allowed = ()
                match_self = any(issubclass(cls, kind) for kind in _MATCH_SELF)
            elif type(allowed) is not tuple:
                raise TypeError(f"{cls.__name__}.__match_args__ must be a tuple (got {type(allowed).__name__})")
            limit = 1 if match_self else len(allowed)
            if limit < count:
                plural = "" if limit == 1 else "s"
                raise TypeError(f"{cls.__name__}() accepts {limit} positional sub-pattern{plural} ({count} given)")
            if match_self:
                values.append(subject)
            else:
                for name in allowed[:count]:
                    if type(name) is not str:
                        raise TypeError(f"__match_args__ elements must be strings (got {type(name).__name__})")
                    value = self._match_attribute(subject, cls, name, seen)
                    if value is UNBOUND:
                        return None
                    values.append(value)
        for name in names:
            value = self._match_attribute(subject, cls, name, seen)
            if value is UNBOUND:
                return None
            values.append(value)
        return tuple(values)

    def _match_attribute(self, subject: Any, cls: type, name: str, seen: set[str]) -> Any:
        if name in seen:
            raise TypeError(f"{cls.__name__}() got multiple sub-patterns for attribute {name!r}")
        seen.add(name)
        return self.attribute_or(subject, name, UNBOUND)


__all__ = ["Patterns"]
