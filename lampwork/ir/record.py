"""`record`: immutable data classes that cost nothing to define.

`dataclass(frozen=True)` compiles six methods for each class, about 0.8 ms; the eighty classes that a stored artifact
is made of took 70 ms of a warm start. A record shares methods written once: construction, equality, hash, text. It is a
dataclass to everything else: `fields`, `replace`, `match` and type checkers work. Classes made by the million (loop IR,
sizes) stay plain dataclasses, whose construction is faster.
"""

from __future__ import annotations

import dataclasses
from dataclasses import FrozenInstanceError, field
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

Class = TypeVar("Class", bound=type)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: Class) -> Class:
    """`cls` as a frozen dataclass: fields from its annotations, compared and hashed by those with `compare`."""
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, match_args=True)(cls)
    every = dataclasses.fields(made)
    made._names = tuple(each.name for each in every)
    made._defaults = {each.name: each.default for each in every if each.default is not dataclasses.MISSING}
    made._factories = {
        each.name: each.default_factory for each in every if each.default_factory is not dataclasses.MISSING
    }
    made._compared = _getter(tuple(each.name for each in every if each.compare))
    made._hashed = _getter(tuple(each.name for each in every if (each.compare if each.hash is None else each.hash)))
    made._shown = tuple(each.name for each in every if each.repr)
    for name, method in _METHODS.items():
        if name == "__init__" or name not in cls.__dict__:
            setattr(made, name, method)
    return made


def _getter(names: tuple[str, ...]) -> Any:
    """A function from an instance to the tuple of these attributes."""
    if not names:
        return staticmethod(lambda instance: ())
    read = attrgetter(*names)
    return staticmethod(read if len(names) > 1 else lambda instance: (read(instance),))


def _init(self: Any, *args: object, **kwargs: object) -> None:
    values = self.__dict__
    names = self._names
    if len(args) > len(names):
        raise TypeError(f"{type(self).__name__} takes {len(names)} values, not {len(args)}")
    values.update(zip(names, args))
    if kwargs:
        for name in kwargs:
            if name in values or name not in names:
                raise TypeError(f"{type(self).__name__} got an unexpected or repeated value {name!r}")
        values.update(kwargs)
    if len(values) < len(names):
        for name, default in self._defaults.items():
            values.setdefault(name, default)
        for name, factory in self._factories.items():
            if name not in values:
                values[name] = factory()
        if len(values) < len(names):
            missing = ", ".join(repr(name) for name in names if name not in values)
            raise TypeError(f"{type(self).__name__} misses a value for {missing}")


def _eq(self: Any, other: Any) -> Any:
    if self is other:
        return True
    if type(self) is not type(other):
        return NotImplemented
    return self._compared(self) == self._compared(other)


def _hash(self: Any) -> int:
    return hash((type(self), self._hashed(self)))


def _repr(self: Any) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._shown)})"


def _setattr(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


_METHODS = {
    "__init__": _init,
    "__eq__": _eq,
    "__hash__": _hash,
    "__repr__": _repr,
    "__setattr__": _setattr,
    "__delattr__": _delattr,
}
