"""`GuardList`: the guards of one capture, deduplicated as they are made, and the sources they speak of, interned.

Interned sources are compared by identity, so that making and deduplicating a guard costs two dict look-ups instead of
hashing a path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any

from lampwork.ir.guard import (
    ArgumentCount,
    ClassLookup,
    Distinct,
    Equals,
    FunctionIs,
    Guard,
    HasKey,
    IsEmpty,
    IsObject,
    KeysAre,
    LengthIs,
    ModuleIsPlain,
    MroIs,
    NumberRelation,
    Registered,
    SameObject,
    Test,
    TypeIs,
)
from lampwork.ir.loops import Location
from lampwork.ir.number import NumberExpr
from lampwork.ir.reference import namespace_of, reference
from lampwork.ir.source import (
    Argument,
    ArrayMemory,
    Attribute,
    Cell,
    ClassAttribute,
    ContextValue,
    InstanceDict,
    Item,
    KeyAt,
    Keyword,
    Named,
    PlainContents,
    PlainTensor,
    PythonModule,
    Referent,
    Remaining,
    Remembered,
    Root,
    Source,
    State,
    Subclasses,
    ThreadNames,
    TypeOf,
    is_source,
)


class Sources:
    """Makes sources; equal ones are the same object."""

    def __init__(self) -> None:
        self._made: dict[tuple, Source] = {}
        self.root = Root()

    def _intern(self, key: tuple, kind: type, *parts: Any) -> Any:
        source = self._made.get(key)
        if source is None:
            source = self._made[key] = kind(*parts)
        return source

    def argument(self, index: int) -> Source:
        return self._intern((Argument, index), Argument, index)

    def keyword(self, name: str) -> Source:
        return self._intern((Keyword, name), Keyword, name)

    def module(self, name: str) -> Source:
        return self._intern((PythonModule, name), PythonModule, name)

    def named(self, module: str, qualname: str) -> Source:
        return self._intern((Named, module, qualname), Named, module, qualname)

    def state(self, name: str) -> Source:
        return self._intern((State, name), State, name)

    def instance_dict(self, base: Source) -> Source:
        return self._intern((InstanceDict, id(base)), InstanceDict, base)

    def attribute(self, base: Source, name: str) -> Source:
        return self._intern((Attribute, id(base), name), Attribute, base, name)

    def item(self, base: Source, key: Any) -> Source:
        return self._intern((Item, id(base), type(key), key), Item, base, key)

    def key_at(self, base: Source, index: int) -> Source:
        return self._intern((KeyAt, id(base), index), KeyAt, base, index)

    def cell(self, base: Source, index: int) -> Source:
        return self._intern((Cell, id(base), index), Cell, base, index)

    def type_of(self, base: Source) -> Source:
        return self._intern((TypeOf, id(base)), TypeOf, base)

    def referent(self, base: Source) -> Source:
        return self._intern((Referent, id(base)), Referent, base)

    def remaining(self, base: Source) -> Source:
        return self._intern((Remaining, id(base)), Remaining, base)

    def subclasses(self, base: Source) -> Source:
        return self._intern((Subclasses, id(base)), Subclasses, base)

    def plain_contents(self, base: Source) -> Source:
        return self._intern((PlainContents, id(base)), PlainContents, base)

    def array_memory(self, base: Source) -> Source:
        return self._intern((ArrayMemory, id(base)), ArrayMemory, base)

    def plain_tensor(self, base: Source) -> Source:
        return self._intern((PlainTensor, id(base)), PlainTensor, base)

    def context_value(self, base: Source, has_default: bool) -> Source:
        return self._intern((ContextValue, id(base), has_default), ContextValue, base, has_default)

    def thread_names(self, base: Source) -> Source:
        return self._intern((ThreadNames, id(base)), ThreadNames, base)

    def remembered(self, base: Source, args: tuple, kwargs: tuple) -> Source:
        key = (Remembered, id(base), repr((args, kwargs)))
        return self._intern(key, Remembered, base, args, kwargs)

    def class_attribute(self, base: Source, name: str) -> Source:
        return self._intern((ClassAttribute, id(base), name), ClassAttribute, base, name)

    def global_variable(self, module: str, name: str) -> Source:
        return self.item(self.instance_dict(self.module(module)), name)


class GuardList:
    """Guards in the order their values were read. `location` names the user's line being interpreted."""

    def __init__(self, location: Callable[[], Location]) -> None:
        self._guards: dict[tuple, Guard] = {}
        self._location = location
        self._references: dict[int, Any] = {}
        #: Names that must be absent from a module's instance dict / instance attributes that must be empty dicts.
        self._absent: dict[int, tuple[Source, dict[str, None], dict[str, None]]] = {}

    def reference(self, value: Any) -> Any:
        """The reference of a class, function or module; made once per object."""
        known = self._references.get(id(value))
        if known is None:
            known = self._references[id(value)] = reference(value)
        return known

    def add(self, source: Source, key: tuple, make: Callable[[], Test]) -> None:
        """Add the guard `make()` on `source` unless one with the same `key` is there."""
        key = (id(source), *key)
        if key not in self._guards:
            self._guards[key] = Guard(source, make(), self._location())

    def equals(self, source: Source, value: Any) -> None:
        self.add(source, ("equals",), lambda: Equals(value))

    def type_is(self, source: Source, cls: type) -> None:
        self.add(source, ("type",), lambda: TypeIs(self.reference(cls)))

    def is_object(self, source: Source, value: Any) -> None:
        self.add(source, ("object",), lambda: IsObject(self.reference(value)))

    def function_is(self, source: Source, function: Any) -> None:
        def make() -> Test:
            ref = self.reference(function)
            if not ref.portable:  # what a function made anew each time closes over, its module perhaps, may die
                ref = replace(ref, live=function.__code__)
            return FunctionIs(ref, namespace_of(function))

        self.add(source, ("function",), make)

    def length_is(self, source: Source, length: int) -> None:
        self.add(source, ("length",), lambda: LengthIs(length))

    def is_empty(self, source: Source, empty: bool) -> None:
        self.add(source, ("empty",), lambda: IsEmpty(empty))

    def keys_are(self, source: Source, keys: tuple, ordered: bool = True) -> None:
        self.add(source, ("keys", ordered), lambda: KeysAre(keys, ordered))

    def has_key(self, source: Source, key: Any, present: bool) -> None:
        which = id(key) if is_source(key) else key
        self.add(source, ("key", type(key), which), lambda: HasKey(key, present))

    def same_object(self, source: Source, other: Source) -> None:
        self.add(source, ("same", id(other)), lambda: SameObject(other))

    def distinct(self, sources: Sequence[Source]) -> None:
        """The objects at `sources`, two or more, are different ones."""
        first, *others = sources
        self.add(first, ("distinct", *map(id, others)), lambda: Distinct(tuple(others)))

    def called_with(self, root: Source, count: int, names: tuple[str, ...], ordered: tuple[str, ...]) -> None:
        """The call has `count` positional arguments and these keywords, those of `ordered` in their order."""
        self.add(root, ("arguments",), lambda: ArgumentCount(count, names, ordered))

    def number_relation(self, holds: NumberExpr) -> None:
        """A comparison of numbers is true."""
        if holds.leaves:
            self.add(holds.leaves[0].source, ("number", holds), lambda: NumberRelation(holds))

    def class_lookup(self, source: Source, name: str, found: Any) -> None:
        """`found`: the object along the MRO, or None where nothing is there."""
        wrapper = ""
        if type(found) in (staticmethod, classmethod) and type(found.__func__) is FunctionType:
            wrapper, found = type(found).__name__, found.__func__
        self.add(
            source, ("lookup", name),
            lambda: ClassLookup(name, None if found is None else self.reference(found), wrapper),
        )  # fmt: skip

    def mro_is(self, source: Source, cls: type) -> None:
        """The class at `source` has the bases of `cls`, in its order of look-ups."""
        _, *bases = type.__getattribute__(cls, "__mro__")
        self.add(source, ("mro",), lambda: MroIs(tuple(map(self.reference, bases))))

    def registered(self, source: Source, abstract: type, registered: bool) -> None:
        """Whether the class at `source` was registered with `abstract`."""
        self.add(
            source, ("registered", id(abstract)), lambda: Registered(self.reference(abstract), registered)
        )  # fmt: skip

    def absent_from_module(self, source: Source, name: str) -> None:
        """The nn.Module at `source` has no instance attribute `name` (gathered into one `ModuleIsPlain`)."""
        self._plain(source)[1][name] = None

    def empty_in_module(self, source: Source, name: str) -> None:
        """The instance attribute `name` of the nn.Module at `source` is an empty dict."""
        self._plain(source)[2][name] = None

    def _plain(self, source: Source) -> tuple[Source, dict[str, None], dict[str, None]]:
        found = self._absent.get(id(source))
        if found is None:
            found = self._absent[id(source)] = (source, {}, {})
        return found

    def covers(self, source: Source, *key: Any) -> bool:
        """Whether a guard with this key is already there."""
        return (id(source), *key) in self._guards

    def finish(self, input_sources: set[int]) -> tuple[Guard, ...]:
        """All guards, module rules included."""
        plain = [Guard(source, ModuleIsPlain(tuple(absent), tuple(empty)))
                 for source, absent, empty in self._absent.values()]  # fmt: skip
        return (*self._guards.values(), *plain)

    def __len__(self) -> int:
        return len(self._guards) + len(self._absent)

    def __iter__(self) -> Iterator[Guard]:
        return iter(self._guards.values())
