"""Tests of sizes and numbers by an expression over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lampwork.ir.guard import SizeRelation
from lampwork.ir.source import Source
from lampwork.runtime.guards.interpreter import evaluate_sizes, read, size_at
from lampwork.runtime.guards.memory_words import Unstable
from lampwork.runtime.guards.rules import GuardRule, guard_rule

if TYPE_CHECKING:
    from lampwork.runtime.guards.check_writer import CheckWriter
    from lampwork.runtime.guards.interpreter import Scope
    from lampwork.runtime.guards.version_snapshots import VersionSnapshots


@guard_rule(SizeRelation)
class SizeRelationRule(GuardRule[SizeRelation]):
    follows_sizes = True

    def difference(self, test: SizeRelation, source: Source, scope: Scope) -> str:
        read(source, scope)
        numbers = {size.name: size_at(size, scope) for size in test.sizes}
        if evaluate_sizes(test.text, numbers):
            return ""
        known = ", ".join(dict.fromkeys(map(str, numbers.values())))
        return f"needs {test.words()}, which does not hold for {known}"

    def emit(self, writer: CheckWriter, test: SizeRelation, source: Source) -> None:
        writer.load(source)
        writer.require(writer.numbers(test.text, {size.name: size for size in test.sizes}))

    def snapshot(self, snapshots: VersionSnapshots, test: SizeRelation, source: Source) -> None:
        snapshots.value(source)
        raise Unstable("numbers are read on every call")

    def remedy(self, test: SizeRelation, source: Source) -> str:
        return (
            "The program tells these sizes apart, and is compiled once for each case. Where it needs a size as a "
            "number (`==` above), use it in arithmetic and tensor operators only."
        )
