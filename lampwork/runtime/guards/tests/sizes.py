"""Tests of sizes and numbers by an expression over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lampwork.ir.guard import NumberRelation
from lampwork.ir.number import evaluate
from lampwork.ir.source import Source
from lampwork.runtime.guards.interpreter import number_at, read
from lampwork.runtime.guards.memory_words import Unstable
from lampwork.runtime.guards.rules import GuardRule, guard_rule

if TYPE_CHECKING:
    from lampwork.runtime.guards.check_writer import CheckWriter
    from lampwork.runtime.guards.interpreter import Scope
    from lampwork.runtime.guards.version_snapshots import VersionSnapshots


@guard_rule(NumberRelation)
class NumberRelationRule(GuardRule[NumberRelation]):
    follows_sizes = True

    def difference(self, test: NumberRelation, source: Source, scope: Scope) -> str:
        read(source, scope)
        numbers = {leaf: number_at(leaf, scope) for leaf in test.holds.leaves}
        if evaluate(test.holds, numbers.__getitem__):
            return ""
        known = ", ".join(dict.fromkeys(map(str, numbers.values())))
        return f"needs {test.words()}, which does not hold for {known}"

    def emit(self, writer: CheckWriter, test: NumberRelation, source: Source) -> None:
        writer.load(source)
        writer.require(writer.number(test.holds))

    def snapshot(self, snapshots: VersionSnapshots, test: NumberRelation, source: Source) -> None:
        snapshots.value(source)
        raise Unstable("numbers are read on every call")

    def remedy(self, test: NumberRelation, source: Source) -> str:
        return (
            "The program distinguishes these sizes, and is compiled once for each case. Where it needs a size as a "
            "number (`==` above), use it in arithmetic and tensor operators only."
        )
