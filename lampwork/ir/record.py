"""`record`: data classes that cost next to nothing to define, and no more to use than others.

`dataclass(frozen=True)` compiles six methods for each class, 0.4 ms in each process: 35 ms of a cold start, much of
a warm one. A record starts with methods that all records share. A class that is made often gets methods of its own,
compiled once, as those of a dataclass are. It is a dataclass to everything else: `fields`, `replace`, `match` and type
checkers work.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, FrozenInstanceError, field
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform, overload

Class = TypeVar("Class", bound=type)

#: Instances after which a class gets methods of its own: about as many as compiling them takes the time of.
OFTEN = 64


@overload
def record(cls: Class, /) -> Class: ...
@overload
def record(*, frozen: bool = True, eq: bool = True) -> Callable[[Class], Class]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: Any = None, /, *, frozen: bool = True, eq: bool = True) -> Any:
    """`cls` as a dataclass: fields from its annotations, compared and hashed by those with `compare`. Methods that
    `cls` writes itself are kept, all but `__init__`.

    frozen  fields never change; else they may, and instances that are compared by value have no hash
    eq      instances are equal where their fields are; else each equals itself alone
    """
    if cls is None:
        return lambda cls: _made(cls, frozen, eq)
    return _made(cls, frozen, eq)


def _made(made: Any, frozen: bool, eq: bool) -> Any:
    every = _fields(made)
    own = made.__dict__
    made.__dataclass_fields__ = {each.name: each for each in every}
    made.__dataclass_params__ = (_Frozen if frozen else _Open).__dict__["__dataclass_params__"]
    made._names = tuple(each.name for each in every)
    made._defaults = {each.name: each.default for each in every if each.default is not MISSING}
    made._factories = {each.name: each.default_factory for each in every if each.default_factory is not MISSING}
    made._compared = _getter(tuple(each.name for each in every if each.compare))
    made._hashed = _getter(tuple(_hashed(every)))
    methods: dict[str, Any] = {**_SHARED, "__match_args__": made._names}
    if eq:
        methods["__eq__"] = _eq
        methods["__hash__"] = _hash if frozen else None
    if frozen:
        methods["__setattr__"], methods["__delattr__"] = _setattr, _delattr
    if hasattr(made, "__post_init__"):
        methods["__init__"] = _init_and_more
    given = [name for name in methods if name == "__init__" or own.get(name) is None]
    made._shared = (made, [name for name in given if methods[name] is not None])
    made._made = [0]
    for name in given:
        setattr(made, name, methods[name])
    return made


def _fields(cls: type) -> list[Field[Any]]:
    """Those of its bases and its own, in the order in which they were declared first."""
    found: dict[str, Field[Any]] = {}
    for base in cls.__mro__[-1:0:-1]:
        found.update(base.__dict__.get("__dataclass_fields__", {}))
    for name, annotation in cls.__annotations__.items():
        if not isinstance(annotation, str):
            raise TypeError(f"{cls.__qualname__}: write `from __future__ import annotations` at the top of its module")
        if annotation.startswith("ClassVar"):
            continue
        given: Any = cls.__dict__.get(name, MISSING)
        each: Any = given if isinstance(given, Field) else field(default=given)
        each.name, each.type, each.kw_only, each._field_type = name, annotation, False, _ORDINARY
        if type(each.default).__hash__ is None:
            raise ValueError(f"{cls.__qualname__}.{name}: all instances would share this default; use default_factory")
        if given is each and each.default is not MISSING:
            setattr(cls, name, each.default)
        elif given is each:
            delattr(cls, name)
        found[name] = each
    needed = [each.default is MISSING and each.default_factory is MISSING for each in found.values()]
    if True in needed[needed.index(False) if False in needed else len(needed) :]:
        raise TypeError(f"{cls.__qualname__}: fields without a default come before those with one")
    return list(found.values())


def _hashed(every: list[Field[Any]]) -> Iterator[str]:
    return (each.name for each in every if (each.compare if each.hash is None else each.hash))


def _getter(names: tuple[str, ...]) -> Any:
    """A function from an instance to the tuple of these attributes."""
    if not names:
        return staticmethod(lambda instance: ())
    read = attrgetter(*names)
    return staticmethod(read if len(names) > 1 else lambda instance: (read(instance),))


# Methods that all records share ---------------------------------------------------------------------------------------


def _init(self: Any, *args: object, **kwargs: object) -> None:
    self._made[0] += 1
    if self._made[0] >= OFTEN:
        _give_own_methods(self)
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


def _init_and_more(self: Any, *args: object, **kwargs: object) -> None:
    _init(self, *args, **kwargs)
    self.__post_init__()


def _eq(self: Any, other: Any) -> Any:
    if self is other:
        return True
    if type(self) is not type(other):
        return NotImplemented
    return self._compared(self) == self._compared(other)


def _hash(self: Any) -> int:
    return hash((type(self), self._hashed(self)))


def _repr(self: Any) -> str:
    shown = (each.name for each in self.__dataclass_fields__.values() if each.repr)
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


def _setattr(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


_SHARED = {"__init__": _init, "__repr__": _repr}


# Methods of one class -------------------------------------------------------------------------------------------------


def _give_own_methods(instance: Any) -> None:
    """Gives the class of `instance` its own `__init__`, `__eq__` and `__hash__`, where it has the shared ones, which do
    the same."""
    cls, shared = instance._shared
    every = tuple(cls.__dataclass_fields__.values())
    names: dict[str, Any] = {"_type": type, "_missing_in_record": MISSING, "_hash": hash}
    parameters, body = [], ["_of_record = self.__dict__"]
    for each in every:
        name, default = each.name, ""
        if each.default is not MISSING:
            names[f"_default_{name}"] = each.default
            default = f" = _default_{name}"
        elif each.default_factory is not MISSING:
            names[f"_make_{name}"] = each.default_factory
            default = " = _missing_in_record"
            body.append(f"if {name} is _missing_in_record: {name} = _make_{name}()")
        parameters.append(f", {name}{default}")
        body.append(f"_of_record[{name!r}] = {name}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    mine, others = (_tuple_text(who, [each.name for each in every if each.compare]) for who in ("self", "other"))
    text = (
        f"def __init__(self{''.join(parameters)}):\n    " + "\n    ".join(body) + "\n"
        "def __eq__(self, other):\n"
        "    if self is other: return True\n"
        "    if _type(self) is not _type(other): return NotImplemented\n"
        f"    return {mine} == {others}\n"
        f"def __hash__(self):\n    return _hash((_type(self), {_tuple_text('self', list(_hashed(list(every))))}))\n"
    )
    exec(text, names)  # names and defaults of fields alone, all of them this package's
    for name in shared:
        if name in names:
            names[name].__qualname__ = f"{cls.__qualname__}.{name}"
            setattr(cls, name, names[name])


def _tuple_text(owner: str, names: list[str]) -> str:
    return "(" + "".join(f"{owner}.{name}, " for name in names) + ")"


@dataclasses.dataclass(init=False, repr=False, eq=False, frozen=True)
class _Frozen:
    """What the standard library keeps of a frozen dataclass with a field."""

    field: int


@dataclasses.dataclass(init=False, repr=False, eq=False)
class _Open:
    """What it keeps of one whose fields may change."""


_ORDINARY = _Frozen.__dict__["__dataclass_fields__"]["field"]._field_type
