"""Tests of several values: which are one object, and which share memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lampwork.ir.guard import Distinct, Guard, SameObject, StorageGroups
from lampwork.ir.source import Source, describe
from lampwork.runtime.guards.interpreter import aliasing_is, read, tensor_extent_bytes
from lampwork.runtime.guards.rules import GuardRule, T, guard_rule

if TYPE_CHECKING:
    from lampwork.runtime.guards.check_writer import CheckWriter
    from lampwork.runtime.guards.interpreter import Scope
    from lampwork.runtime.guards.native_tensors import DistinctObjects
    from lampwork.runtime.guards.static import Split
    from lampwork.runtime.guards.version_snapshots import VersionSnapshots

#: So many objects are compared with each other natively.
FEWEST_DISTINCT = 16


class SharingRule(GuardRule[T]):
    """The remedy of tests of what is shared."""

    def remedy(self, test: T, source: Source) -> str:
        return "Pass tensors that share memory in the same way each time."


@guard_rule(SameObject)
class SameObjectRule(SharingRule[SameObject]):
    def difference(self, test: SameObject, source: Source, scope: Scope) -> str:
        if read(source, scope) is read(test.other, scope):
            return ""
        return f"was the same object as {describe(test.other)}, is now another"

    def emit(self, writer: CheckWriter, test: SameObject, source: Source) -> None:
        value = writer.load(source)
        writer.refuse(f"{value} is not {writer.load(test.other)}")

    def snapshot(self, snapshots: VersionSnapshots, test: SameObject, source: Source) -> None:
        snapshots.value(source)
        snapshots.value(test.other)


@guard_rule(Distinct)
class DistinctRule(SharingRule[Distinct]):
    order = 5
    follows_sizes = True

    def difference(self, test: Distinct, source: Source, scope: Scope) -> str:
        values = [read(each, scope) for each in (source, *test.others)]
        if len({id(each) for each in values}) == len(values):
            return ""
        return f"and {', '.join(map(describe, test.others))} were different objects, two of them are now the same"

    def emit(self, writer: CheckWriter, test: Distinct, source: Source) -> None:
        value = writer.load(source)
        others = [writer.load(other) for other in test.others]
        if len(others) == 1:
            writer.refuse(f"{value} is {others[0]}")
        elif others:
            names = [value, *others]
            natively = _distinct_objects(len(names)) if len(others) >= FEWEST_DISTINCT else None
            if natively is not None:
                objects = names if writer.batch is None else writer.batch.joined(names)
                writer.require(f"{writer.constant(natively)}(({', '.join(objects)}, ))")
            else:
                identities = ", ".join(f"id({name})" for name in names)
                writer.refuse(f"len({{{identities}}}) != {len(names)}")

    def snapshot(self, snapshots: VersionSnapshots, test: Distinct, source: Source) -> None:
        for each in (source, *test.others):
            snapshots.value(each)

    def place(self, split: Split, guard: Guard, test: Distinct) -> None:
        sources = (guard.source, *test.others)
        call = [source for source in sources if not split.is_static(source)]
        static = [source for source in sources if split.is_static(source)]
        if len(call) > 1:
            split.call.append(replace(guard, source=call[0], test=Distinct(tuple(call[1:]))))
        if len(static) > 1:
            split.static.append(replace(guard, source=static[0], test=Distinct(tuple(static[1:]))))
        if call and static:
            split.different.extend(call)
            split.pin(static)


@guard_rule(StorageGroups)
class StorageGroupsRule(SharingRule[StorageGroups]):
    order = 5
    follows_sizes = True

    def difference(self, test: StorageGroups, source: Source, scope: Scope) -> str:
        read(source, scope)
        tensors = [read(each, scope) for each in test.sources]
        pointers = [tensor.data_ptr() for tensor in tensors]
        if aliasing_is(pointers, [tensor_extent_bytes(tensor) for tensor in tensors], test.groups):
            return ""
        return f"and {len(test.sources) - 1} other tensors overlap in memory in another way than before"

    def emit(self, writer: CheckWriter, test: StorageGroups, source: Source) -> None:
        names = [writer.load(each) for each in test.sources]
        extents = [writer.extent_bytes(each) for each in test.sources]
        if len(names) == 2 and not test.groups and None not in extents:
            if 0 in extents:
                return
            left, right = (f"{name}.data_ptr()" for name in names)
            writer.refuse(f"-{extents[1]} < {right} - {left} < {extents[0]}")
            return
        if len(names) < 2:
            return
        if not test.groups and writer.batch is not None and writer.batch.holds(test.sources):
            writer.refuse(f"not {writer.constant(writer.batch.disjoint(test.sources))}(places)")
            return
        pointers = ", ".join(f"{name}.data_ptr()" for name in names)
        if None in extents:
            sizes = "(" + ", ".join(f"reading.tensor_extent_bytes({name})" for name in names) + ")"
        else:
            sizes = writer.constant(tuple(extents))
        writer.require(f"reading.aliasing_is(({pointers}), {sizes}, {writer.constant(test.groups)})")

    def snapshot(self, snapshots: VersionSnapshots, test: StorageGroups, source: Source) -> None:
        for each in test.sources:
            snapshots.value(each)

    def place(self, split: Split, guard: Guard, test: StorageGroups) -> None:
        static = [split.is_static(source) for source in test.sources]
        if any(len({static[index] for index, _ in group}) > 1 for group in test.groups):
            split.call.append(guard)  # an argument overlaps a weight: all of it on every call
            return
        for kind, guards in ((False, split.call), (True, split.static)):
            chosen = [index for index, each in enumerate(static) if each is kind]
            if len(chosen) > 1:
                renumber = {index: position for position, index in enumerate(chosen)}
                groups = tuple(
                    tuple((renumber[index], offset) for index, offset in group)
                    for group in test.groups
                    if static[group[0][0]] is kind
                )
                sources = tuple(test.sources[index] for index in chosen)
                guards.append(replace(guard, source=sources[0], test=StorageGroups(sources, groups)))
        if any(static) and not all(static):
            split.disjoint.extend(source for source, each in zip(test.sources, static) if not each)
            split.pin([source for source, each in zip(test.sources, static) if each])


def _distinct_objects(count: int) -> DistinctObjects | None:
    """What compares so many objects with each other natively; None where this interpreter cannot."""
    from lampwork.runtime.guards import native_tensors

    return native_tensors.DistinctObjects(count) if native_tensors.supported() else None
