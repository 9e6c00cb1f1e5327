"""Tests of builtin containers: their length, their keys, one key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lampwork.ir.guard import HasKey, IsEmpty, KeysAre, LengthIs
from lampwork.ir.source import InstanceDict, Source, is_source
from lampwork.runtime.guards.failures import short
from lampwork.runtime.guards.interpreter import builtin_length, has_key, keys_are, read
from lampwork.runtime.guards.memory_words import DICT_USED, LIST_SIZE, Unstable
from lampwork.runtime.guards.rules import GuardRule, T, guard_rule
from lampwork.runtime.guards.steps.containers import EXACT
from lampwork.runtime.guards.version_snapshots import KEEP_ORDER

if TYPE_CHECKING:
    from lampwork.runtime.guards.check_writer import CheckWriter
    from lampwork.runtime.guards.interpreter import Scope
    from lampwork.runtime.guards.version_snapshots import VersionSnapshots


class ContainerRule(GuardRule[T]):
    advice = "Use containers of the same length and keys."


@guard_rule(LengthIs)
class LengthIsRule(ContainerRule[LengthIs]):
    def difference(self, test: LengthIs, source: Source, scope: Scope) -> str:
        length = builtin_length(read(source, scope))
        return "" if length == test.length else f"had {test.length} items, has now {length}"

    def emit(self, writer: CheckWriter, test: LengthIs, source: Source) -> None:
        value = writer.load(source)
        length = "len" if writer.type_of(source) in EXACT else "reading.builtin_length"
        writer.refuse(f"{length}({value}) != {test.length}")

    def snapshot(self, snapshots: VersionSnapshots, test: LengthIs, source: Source) -> None:
        value = snapshots.value(source)
        if isinstance(value, dict):
            snapshots.words(id(value) + DICT_USED, 8)
        elif type(value) is list:
            snapshots.words(id(value) + LIST_SIZE, 8)
        elif type(value) not in (tuple, str, bytes, frozenset, range):
            raise Unstable("length")


@guard_rule(IsEmpty)
class IsEmptyRule(ContainerRule[IsEmpty]):
    def difference(self, test: IsEmpty, source: Source, scope: Scope) -> str:
        length = builtin_length(read(source, scope))
        return "" if (length == 0) is test.empty else f"had {'no' if test.empty else 'some'} items, has now {length}"

    def emit(self, writer: CheckWriter, test: IsEmpty, source: Source) -> None:
        value = writer.load(source)
        length = "len" if writer.type_of(source) in EXACT else "reading.builtin_length"
        writer.refuse(f"{length}({value}) {'!=' if test.empty else '=='} 0")

    def snapshot(self, snapshots: VersionSnapshots, test: IsEmpty, source: Source) -> None:
        LengthIsRule().snapshot(snapshots, LengthIs(0), source)


@guard_rule(KeysAre)
class KeysAreRule(ContainerRule[KeysAre]):
    def difference(self, test: KeysAre, source: Source, scope: Scope) -> str:
        value = read(source, scope)
        if keys_are(value, test.keys, test.ordered):
            return ""
        return f"had the keys {short(test.keys)}, has now {short(tuple(value))}"

    def emit(self, writer: CheckWriter, test: KeysAre, source: Source) -> None:
        value = writer.load(source)
        if writer.type_of(source) is dict and test.ordered and all(type(key) is str for key in test.keys):
            # A key equal to a str but of another type would have to be a str subclass: tested by identity of type.
            keys = writer.constant(test.keys)
            writer.require(f"len({value}) == {len(test.keys)} and same_value(tuple({value}), {keys})")
        else:
            writer.require(f"reading.keys_are({value}, {writer.constant(test.keys)}, {test.ordered})")

    def snapshot(self, snapshots: VersionSnapshots, test: KeysAre, source: Source) -> None:
        value = snapshots.value(source)
        if not isinstance(value, dict) or (test.ordered and type(value) not in KEEP_ORDER):
            raise Unstable("keys")
        snapshots.keys(value)


@guard_rule(HasKey)
class HasKeyRule(ContainerRule[HasKey]):
    def difference(self, test: HasKey, source: Source, scope: Scope) -> str:
        key = read(test.key, scope) if is_source(test.key) else test.key
        if has_key(read(source, scope), key) is test.present:
            return ""
        return f"{'lost' if test.present else 'gained'} the key {key!r}"

    def emit(self, writer: CheckWriter, test: HasKey, source: Source) -> None:
        value = writer.load(source)
        key = writer.load(test.key) if is_source(test.key) else writer.literal(test.key)
        if isinstance(source, InstanceDict) or writer.type_of(source) in (dict, set, frozenset):
            writer.refuse(f"{key} {'not in' if test.present else 'in'} {value}")
        else:
            writer.refuse(f"reading.has_key({value}, {key}) is not {test.present}")

    def snapshot(self, snapshots: VersionSnapshots, test: HasKey, source: Source) -> None:
        value = snapshots.value(source)
        if is_source(test.key):
            snapshots.value(test.key)
        if snapshots.is_class_dict(value):
            return
        if not isinstance(value, dict):
            raise Unstable("membership")
        snapshots.keys(value)
