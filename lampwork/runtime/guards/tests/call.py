"""Tests of the call itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lampwork.ir.guard import ArgumentCount, Guard
from lampwork.ir.source import Source
from lampwork.runtime.guards.memory_words import Unstable
from lampwork.runtime.guards.rules import GuardRule, guard_rule

if TYPE_CHECKING:
    from lampwork.runtime.guards.check_writer import CheckWriter
    from lampwork.runtime.guards.interpreter import Scope
    from lampwork.runtime.guards.static import Split
    from lampwork.runtime.guards.version_snapshots import VersionSnapshots


@guard_rule(ArgumentCount)
class ArgumentCountRule(GuardRule[ArgumentCount]):
    order = 0

    def difference(self, test: ArgumentCount, source: Source, scope: Scope) -> str:
        if len(scope.args) == test.positional and set(scope.kwargs) == set(test.keywords):
            order = [name for name in scope.kwargs if name in test.ordered]
            return "" if order == list(test.ordered) else f"had keywords in the order {list(test.ordered)}, now {order}"
        expected = f"{test.positional} positional and keywords {sorted(test.keywords)}"
        return f"was called with {expected}, now {len(scope.args)} positional and {sorted(scope.kwargs)}"

    def emit(self, writer: CheckWriter, test: ArgumentCount, source: Source) -> None:
        if test.keywords:
            names = "".join(f" or {name!r} not in kwargs" for name in test.keywords)
            writer.refuse(f"len(args) != {test.positional} or len(kwargs) != {len(test.keywords)}{names}")
            if test.ordered:
                ordered = f"[name for name in kwargs if name in {writer.constant(frozenset(test.ordered))}]"
                writer.refuse(f"{ordered} != {writer.constant(list(test.ordered))}")
        else:
            writer.refuse(f"len(args) != {test.positional} or kwargs")

    def snapshot(self, snapshots: VersionSnapshots, test: ArgumentCount, source: Source) -> None:
        raise Unstable("another one in each call")

    def remedy(self, test: ArgumentCount, source: Source) -> str:
        return "Call it in one way: the same positional arguments and keywords."

    def place(self, split: Split, guard: Guard, test: ArgumentCount) -> None:
        split.call.append(guard)
