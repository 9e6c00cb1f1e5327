"""Tests of plain data by its value."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

import torch

from lampwork._torch import state_test
from lampwork.ir.guard import Equals
from lampwork.ir.source import Source, State
from lampwork.runtime.guards.failures import short
from lampwork.runtime.guards.interpreter import read
from lampwork.runtime.guards.plain_data import same_value
from lampwork.runtime.guards.rules import GuardRule, guard_rule

if TYPE_CHECKING:
    from lampwork.runtime.guards.check_writer import CheckWriter
    from lampwork.runtime.guards.interpreter import Scope
    from lampwork.runtime.guards.version_snapshots import VersionSnapshots

#: Longer text and bytes are constants of the check: the very object that was captured is compared by identity, and the
#: source of the check stays short.
LONGEST_LITERAL = 200


@guard_rule(Equals)
class EqualsRule(GuardRule[Equals]):
    advice = "Keep the value that changes out of the program, or pass it as a tensor."

    def difference(self, test: Equals, source: Source, scope: Scope) -> str:
        value = read(source, scope)
        return "" if same_value(value, test.value) else f"was {short(test.value)}, is now {short(value)}"

    def emit(self, writer: CheckWriter, test: Equals, source: Source) -> None:
        if isinstance(source, State) and _emit_state(writer, source.name, test.value):
            return
        value, expected = writer.load(source), test.value
        kind = type(expected)
        if expected is None or kind is bool:
            writer.refuse(f"{value} is not {expected}")
        elif kind in (str, bytes) and len(expected) > LONGEST_LITERAL:
            known = writer.constant(expected)
            writer.refuse(
                f"{value} is not {known} and (type({value}) is not {writer.constant(kind)} or {value} != {known})"
            )
        elif kind in (int, str, bytes):
            writer.refuse(f"type({value}) is not {writer.constant(kind)} or {value} != {expected!r}")
        elif kind is float and expected != 0.0 and not isnan(expected):
            writer.refuse(f"type({value}) is not {writer.constant(float)} or {value} != {writer.constant(expected)}")
        elif kind in (torch.dtype, torch.layout, torch.memory_format):
            writer.refuse(f"{value} is not {writer.constant(expected)}")
        elif kind in (torch.device, torch.Size):
            writer.refuse(f"type({value}) is not {writer.constant(kind)} or {value} != {writer.constant(expected)}")
        else:
            writer.require(f"same_value({value}, {writer.constant(expected)})")

    def snapshot(self, snapshots: VersionSnapshots, test: Equals, source: Source) -> None:
        snapshots.value(source)  # the same object, and immutable where its value counts


def _emit_state(writer: CheckWriter, name: str, expected: object) -> bool:
    """Writes a quicker test of a process state, where there is one."""
    found = state_test(name, expected)
    if found is None:
        return False
    condition, names = found
    writer.add_names(names)
    writer.refuse(condition)
    return True
