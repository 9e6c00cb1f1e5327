"""Tests of what a value is: its type, the object itself, the code of a function."""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import TYPE_CHECKING

from lampwork.ir.guard import FunctionIs, IsObject, ObjectRef, TypeIs
from lampwork.ir.reference import ClassWith, code_digest, decides_by_contents, find, module_namespace, resolve
from lampwork.ir.source import Source, State, is_static
from lampwork.runtime.guards.failures import short
from lampwork.runtime.guards.interpreter import function_is, is_class_with, read
from lampwork.runtime.guards.memory_words import function_offset
from lampwork.runtime.guards.rules import OWN_REMEDY, STATE_REMEDY, GuardRule, T, guard_rule

if TYPE_CHECKING:
    from lampwork.runtime.guards.check_writer import CheckWriter
    from lampwork.runtime.guards.interpreter import Scope
    from lampwork.runtime.guards.version_snapshots import VersionSnapshots


class ObjectRule(GuardRule[T]):
    """The remedy of tests of classes and functions."""

    def remedy(self, test: T, source: Source) -> str:
        if isinstance(source, State):
            return STATE_REMEDY
        return OWN_REMEDY if is_static(source) else "Pass objects of the same class and functions."


def _is_class(value: object, ref: ObjectRef) -> bool:
    """Whether `value` is what `ref` names: a class, or another object."""
    if decides_by_contents(ref):
        return is_class_with(value, ClassWith(ref.digest))
    return value is resolve(ref)


@guard_rule(TypeIs)
class TypeIsRule(ObjectRule[TypeIs]):
    on_load = True
    tells_type = True

    def difference(self, test: TypeIs, source: Source, scope: Scope) -> str:
        kind = type(read(source, scope))
        if _is_class(kind, test.ref):
            return ""
        return f"was a {test.ref.module}.{test.ref.qualname}, is now a {kind.__module__}.{kind.__qualname__}"

    def emit(self, writer: CheckWriter, test: TypeIs, source: Source) -> None:
        value = writer.load(source)
        if decides_by_contents(test.ref):
            writer.require(f"{writer.constant(ClassWith(test.ref.digest))}(type({value}))")
            return
        cls = resolve(test.ref)
        writer.refuse(f"type({value}) is not {writer.constant(cls)}")
        writer.learn_type(source, cls)

    def snapshot(self, snapshots: VersionSnapshots, test: TypeIs, source: Source) -> None:
        snapshots.type_of(snapshots.value(source))


@guard_rule(IsObject)
class IsObjectRule(ObjectRule[IsObject]):
    def difference(self, test: IsObject, source: Source, scope: Scope) -> str:
        value = read(source, scope)
        if _is_class(value, test.ref):
            return ""
        return f"was {test.ref.module}.{test.ref.qualname}, is now {short(value)}"

    def emit(self, writer: CheckWriter, test: IsObject, source: Source) -> None:
        value = writer.load(source)
        if decides_by_contents(test.ref):
            writer.require(f"reading.is_class_with({value}, {writer.constant(ClassWith(test.ref.digest))})")
            return
        writer.refuse(f"{value} is not {writer.constant(resolve(test.ref))}")

    def snapshot(self, snapshots: VersionSnapshots, test: IsObject, source: Source) -> None:
        snapshots.value(source)  # the same object


@guard_rule(FunctionIs)
class FunctionIsRule(ObjectRule[FunctionIs]):
    tells_type = True

    def difference(self, test: FunctionIs, source: Source, scope: Scope) -> str:
        value = read(source, scope)
        if function_is(value, test.ref.digest):
            if not test.namespace or value.__globals__ is module_namespace(test.namespace):
                return ""
            return f"was a function of module {test.namespace}, is now one with other globals: {short(value)}"
        name = f"{test.ref.module}.{test.ref.qualname}"
        return f"was the function {name}; its code changed or it was replaced by {short(value)}"

    def emit(self, writer: CheckWriter, test: FunctionIs, source: Source) -> None:
        value = writer.load(source)
        code = _code_of(writer, test.ref)
        writer.refuse(
            f"type({value}) is not FunctionType or "
            f"({value}.__code__ is not {code} and not reading.function_is({value}, {test.ref.digest!r}))"
        )
        if test.namespace:
            writer.refuse(f"{value}.__globals__ is not {writer.constant(module_namespace(test.namespace))}")
        writer.learn_type(source, FunctionType)

    def snapshot(self, snapshots: VersionSnapshots, test: FunctionIs, source: Source) -> None:
        value = snapshots.value(source)
        snapshots.type_of(value)
        snapshots.slot(id(value) + function_offset("__code__"), value.__code__)


def _code_of(writer: CheckWriter, ref: ObjectRef) -> str:
    """The name of the constant code object that has the digest of `ref`; None where this process has none yet."""
    try:
        found = ref.live if ref.live is not None else find(ref.module, ref.qualname)
        code = found if isinstance(found, CodeType) else found.__code__
        return writer.constant(code if code_digest(code) == ref.digest else None)
    except (LookupError, AttributeError):
        return writer.constant(None)
