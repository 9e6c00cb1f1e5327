"""Tests of classes and modules: what a name is in a class, and that a module has nothing of its own."""

from __future__ import annotations

import abc
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING

from lampwork.ir.guard import ClassLookup, ModuleIsPlain, MroIs, ObjectRef, Registered
from lampwork.ir.reference import ClassWith, decides_by_code, decides_by_contents, is_registered, resolve
from lampwork.ir.source import Source
from lampwork.runtime.guards.failures import short
from lampwork.runtime.guards.interpreter import class_lookup, has_code, has_mro, instance_dict, lookup_is, read
from lampwork.runtime.guards.memory_words import DICT_USED, Unstable, function_offset, registrations
from lampwork.runtime.guards.rules import GuardRule, guard_rule
from lampwork.runtime.guards.steps.attributes import has_plain_dict
from lampwork.runtime.guards.tests.identity import ObjectRule

if TYPE_CHECKING:
    from lampwork.runtime.guards.check_writer import CheckWriter
    from lampwork.runtime.guards.interpreter import Scope
    from lampwork.runtime.guards.version_snapshots import VersionSnapshots


@guard_rule(ClassLookup)
class ClassLookupRule(ObjectRule[ClassLookup]):
    def difference(self, test: ClassLookup, source: Source, scope: Scope) -> str:
        found = test.found
        actual = class_lookup(read(source, scope), test.name)
        if found is not None and decides_by_code(found):
            same = has_code(actual, found.digest, test.wrapper)
        else:
            wanted = None if found is None else resolve(found)
            same = lookup_is(actual, wanted, "" if found is None else found.digest, test.wrapper)
        if same:
            return ""
        return f".{test.name} was {'absent' if found is None else found.qualname}, is now {short(actual)}"

    def emit(self, writer: CheckWriter, test: ClassLookup, source: Source) -> None:
        value = writer.load(source)
        actual = f"class_lookup({value}, {test.name!r})"
        if test.found is None:
            writer.refuse(f"{actual} is not None")
            return
        if decides_by_code(test.found):
            writer.require(f"reading.has_code({actual}, {test.found.digest!r}, {test.wrapper!r})")
            return
        found = resolve(test.found)
        if test.found.kind != "function" or (isinstance(found, FunctionType) and not test.found.digest):
            writer.refuse(f"{actual} is not {writer.constant(found)}")
        else:
            writer.require(
                f"reading.lookup_is({actual}, {writer.constant(found)}, {test.found.digest!r}, {test.wrapper!r})"
            )

    def snapshot(self, snapshots: VersionSnapshots, test: ClassLookup, source: Source) -> None:
        value = snapshots.value(source)
        snapshots.class_version(value)
        found = class_lookup(value, test.name)
        found = found.__func__ if type(found) in (staticmethod, classmethod) else found
        if type(found) is FunctionType:
            snapshots.slot(id(found) + function_offset("__code__"), found.__code__)


def _classes(refs: tuple[ObjectRef, ...]) -> tuple[object, ...]:
    """The classes that `refs` name; what knows one by its contents, where no name leads to it."""
    return tuple(ClassWith(ref.digest) if decides_by_contents(ref) else resolve(ref) for ref in refs)


@guard_rule(MroIs)
class MroIsRule(ObjectRule[MroIs]):
    def difference(self, test: MroIs, source: Source, scope: Scope) -> str:
        cls = read(source, scope)
        if has_mro(cls, _classes(test.bases)):
            return ""
        return f"had the bases {', '.join(ref.qualname for ref in test.bases)}, has now {short(cls.__mro__[1:])}"

    def emit(self, writer: CheckWriter, test: MroIs, source: Source) -> None:
        value = writer.load(source)
        writer.require(f"reading.has_mro({value}, {writer.constant(_classes(test.bases))})")

    def snapshot(self, snapshots: VersionSnapshots, test: MroIs, source: Source) -> None:
        snapshots.class_version(snapshots.value(source))


@guard_rule(Registered)
class RegisteredRule(ObjectRule[Registered]):
    def difference(self, test: Registered, source: Source, scope: Scope) -> str:
        if is_registered(read(source, scope), resolve(test.abstract)) is test.registered:
            return ""
        return f"was {'' if test.registered else 'not '}registered with {test.abstract.qualname}"

    def emit(self, writer: CheckWriter, test: Registered, source: Source) -> None:
        value = writer.load(source)
        answer = writer.constant(RegisteredNow(resolve(test.abstract), test.registered))
        writer.require(f"{answer}({value})")

    def snapshot(self, snapshots: VersionSnapshots, test: Registered, source: Source) -> None:
        snapshots.class_version(snapshots.value(source))
        snapshots.words(registrations(), 8)


class RegisteredNow:
    """Whether `is_registered(cls, abstract)` is `registered`; looked up again when another class was registered."""

    def __init__(self, abstract: type, registered: bool) -> None:
        self.abstract, self.registered = abstract, registered
        self.token: object = None
        self.known: Callable[[], object] = lambda: None

    def __call__(self, cls: type) -> bool:
        token = abc.get_cache_token()
        if token == self.token and self.known() is cls:
            return True
        if is_registered(cls, self.abstract) is not self.registered:
            return False
        self.token, self.known = token, weakref.ref(cls)
        return True


@guard_rule(ModuleIsPlain)
class ModuleIsPlainRule(GuardRule[ModuleIsPlain]):
    def difference(self, test: ModuleIsPlain, source: Source, scope: Scope) -> str:
        attributes = instance_dict(read(source, scope))
        for name in test.names:
            if name in attributes:
                return f"now has an instance attribute {name}"
        for name in test.empty:
            if attributes[name]:
                return f".{name} was empty, has now {len(attributes[name])} entries"
        return ""

    def emit(self, writer: CheckWriter, test: ModuleIsPlain, source: Source) -> None:
        value = writer.load(source)
        kind = writer.type_of(source)
        plain = kind is not None and has_plain_dict(kind)
        attributes = f"{value}.__dict__" if plain else f"reading.instance_dict({value})"
        name = f"d{len(writer.lines)}"
        writer.lines.append(f"{name} = {attributes}")
        conditions = [f"{name}[{key!r}]" for key in test.empty] + [f"{key!r} in {name}" for key in test.names]
        if conditions:
            writer.refuse(" or ".join(conditions))

    def snapshot(self, snapshots: VersionSnapshots, test: ModuleIsPlain, source: Source) -> None:
        attributes = snapshots.instance_dict(snapshots.value(source))
        snapshots.keys(attributes)
        for name in test.empty:
            snapshots.entry(attributes, name)
            _take_empty(snapshots, attributes[name])


def _take_empty(snapshots: VersionSnapshots, value: object) -> None:
    if not isinstance(value, dict) or dict.__len__(value):
        raise Unstable("no empty dict")
    snapshots.words(id(value) + DICT_USED, 8)
