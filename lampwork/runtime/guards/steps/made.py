"""Steps to what no slot of the base holds: referents, remembered answers, and what each call makes."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from lampwork.ir.number import evaluate
from lampwork.ir.operations import context_value, plain_contents, remaining, subclasses, thread_names
from lampwork.ir.source import (
    ArrayMemory,
    Computed,
    ContextValue,
    HostInput,
    Numbers,
    PlainContents,
    PlainTensor,
    Referent,
    Remaining,
    Remembered,
    Subclasses,
    ThreadNames,
    is_source,
)
from lampwork.runtime.guards.interpreter import (
    array_memory,
    number_at,
    number_tensor,
    plain_tensor,
    read,
    remembered,
)
from lampwork.runtime.guards.memory_words import REFERENT, Unstable, word
from lampwork.runtime.guards.rules import StepRule, step_rule

if TYPE_CHECKING:
    from lampwork.runtime.guards.check_writer import CheckWriter
    from lampwork.runtime.guards.interpreter import Scope
    from lampwork.runtime.guards.version_snapshots import VersionSnapshots


@step_rule(Referent)
class ReferentRule(StepRule[Referent]):
    def read(self, source: Referent, scope: Scope) -> Any:
        return read(source.base, scope)()

    def text(self, writer: CheckWriter, source: Referent) -> str:
        return f"{writer.load(source.base)}()"

    def snapshot(self, snapshots: VersionSnapshots, source: Referent) -> Any:
        reference = snapshots.value(source.base)
        found = reference() if type(reference) is weakref.ref else None
        if found is None or word(id(reference) + REFERENT) != id(found):
            raise Unstable("no weak reference")
        # It is cleared when the object goes, and never refers to another.
        snapshots.words(id(reference) + REFERENT, 8)
        return found


@step_rule(Remembered)
class RememberedRule(StepRule[Remembered]):
    def read(self, source: Remembered, scope: Scope) -> Any:
        return remembered(
            read(source.base, scope),
            [read(each, scope) if is_source(each) else each for each in source.args],
            {name: read(each, scope) if is_source(each) else each for name, each in source.kwargs},
        )

    def text(self, writer: CheckWriter, source: Remembered) -> str:
        part = lambda each: writer.load(each) if is_source(each) else writer.constant(each)
        shown = "".join(f"{part(each)}, " for each in source.args)
        named = "".join(f"{name!r}: {part(each)}, " for name, each in source.kwargs)
        return f"reading.remembered({writer.load(source.base)}, ({shown}), {{{named}}})"

    def snapshot(self, snapshots: VersionSnapshots, source: Remembered) -> Any:
        raise Unstable("the function may be asked again")


@step_rule(ContextValue)
class ContextValueRule(StepRule[ContextValue]):
    def read(self, source: ContextValue, scope: Scope) -> Any:
        return context_value(read(source.base, scope), source.has_default)

    def text(self, writer: CheckWriter, source: ContextValue) -> str:
        return f"reading.context_value({writer.load(source.base)}, {source.has_default})"

    def snapshot(self, snapshots: VersionSnapshots, source: ContextValue) -> Any:
        raise Unstable("each context has its own")


@step_rule(Remaining)
class RemainingRule(StepRule[Remaining]):
    def read(self, source: Remaining, scope: Scope) -> Any:
        return remaining(read(source.base, scope))

    def text(self, writer: CheckWriter, source: Remaining) -> str:
        return f"reading.remaining({writer.load(source.base)})"

    def snapshot(self, snapshots: VersionSnapshots, source: Remaining) -> Any:
        raise Unstable("made on each call")


@step_rule(Subclasses)
class SubclassesRule(StepRule[Subclasses]):
    def read(self, source: Subclasses, scope: Scope) -> Any:
        return subclasses(read(source.base, scope))

    def text(self, writer: CheckWriter, source: Subclasses) -> str:
        return f"reading.subclasses({writer.load(source.base)})"

    def snapshot(self, snapshots: VersionSnapshots, source: Subclasses) -> Any:
        raise Unstable("made on each call")


@step_rule(PlainContents)
class PlainContentsRule(StepRule[PlainContents]):
    def read(self, source: PlainContents, scope: Scope) -> Any:
        return plain_contents(read(source.base, scope))

    def text(self, writer: CheckWriter, source: PlainContents) -> str:
        return f"reading.plain_contents({writer.load(source.base)})"

    def snapshot(self, snapshots: VersionSnapshots, source: PlainContents) -> Any:
        return plain_contents(snapshots.value(source.base))  # the same object holds the same


@step_rule(ArrayMemory)
class ArrayMemoryRule(StepRule[ArrayMemory]):
    def read(self, source: ArrayMemory, scope: Scope) -> Any:
        return array_memory(read(source.base, scope))

    def text(self, writer: CheckWriter, source: ArrayMemory) -> str:
        return f"reading.array_memory({writer.load(source.base)})"

    def snapshot(self, snapshots: VersionSnapshots, source: ArrayMemory) -> Any:
        raise Unstable("made on each call")


@step_rule(PlainTensor)
class PlainTensorRule(StepRule[PlainTensor]):
    def read(self, source: PlainTensor, scope: Scope) -> Any:
        return plain_tensor(read(source.base, scope))

    def text(self, writer: CheckWriter, source: PlainTensor) -> str:
        return f"reading.plain_tensor({writer.load(source.base)})"

    def snapshot(self, snapshots: VersionSnapshots, source: PlainTensor) -> Any:
        raise Unstable("made on each call")


@step_rule(Numbers)
class NumbersRule(StepRule[Numbers]):
    def read(self, source: Numbers, scope: Scope) -> Any:
        known = {leaf: number_at(leaf, scope) for number in source.numbers for leaf in number.leaves}
        return number_tensor([evaluate(number, known.__getitem__) for number in source.numbers], source.device)

    def text(self, writer: CheckWriter, source: Numbers) -> str:
        shown = ", ".join(map(writer.number, source.numbers))
        return f"reading.number_tensor(({shown}, ){f', {source.device!r}' if source.device else ''})"

    def snapshot(self, snapshots: VersionSnapshots, source: Numbers) -> Any:
        raise Unstable("made on each call")


@step_rule(Computed)
class ComputedRule(StepRule[Computed]):
    def read(self, source: Computed, scope: Scope) -> Any:
        return evaluate(source.number, {leaf: number_at(leaf, scope) for leaf in source.number.leaves}.__getitem__)

    def text(self, writer: CheckWriter, source: Computed) -> str:
        return writer.number(source.number)

    def snapshot(self, snapshots: VersionSnapshots, source: Computed) -> Any:
        raise Unstable("made on each call")


@step_rule(HostInput)
class HostInputRule(StepRule[HostInput]):
    """The entry puts the tensor there when it has called; until then there is nothing."""

    def read(self, source: HostInput, scope: Scope) -> Any:
        return None

    def text(self, writer: CheckWriter, source: HostInput) -> str:
        return "None"

    def snapshot(self, snapshots: VersionSnapshots, source: HostInput) -> Any:
        raise Unstable("made on each call")


@step_rule(ThreadNames)
class ThreadNamesRule(StepRule[ThreadNames]):
    def read(self, source: ThreadNames, scope: Scope) -> Any:
        return thread_names(read(source.base, scope))

    def text(self, writer: CheckWriter, source: ThreadNames) -> str:
        return f"reading.thread_names({writer.load(source.base)})"

    def snapshot(self, snapshots: VersionSnapshots, source: ThreadNames) -> Any:
        raise Unstable("each thread has its own")
