"""The two tables: one rule for each kind of test, and one for each kind of step of a source.

    @guard_rule(LengthIs)                          @step_rule(Cell)
    class LengthIsRule(GuardRule[LengthIs]):       class CellRule(StepRule[Cell]):
        difference  what fails, in words               read      the value
        emit        text of the compiled check         text      an expression for the value
        snapshot    words of memory                    snapshot  the value, and words of memory

The records are in `lampwork/ir`, with what can be told without a value. The rules are in `tests/` and `steps/`. A
new kind is a record and its rule, nothing else (docs/extending.md).

A rule holds no state. `difference` and `read` define what a test and a step mean; `emit`, `text` and `snapshot` must
agree with them. None of them runs code of the program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from lampwork.ir.guard import Guard, Test
from lampwork.ir.source import Source, State

if TYPE_CHECKING:
    from lampwork.runtime.guards.check_writer import CheckWriter
    from lampwork.runtime.guards.interpreter import Scope
    from lampwork.runtime.guards.static import Split
    from lampwork.runtime.guards.version_snapshots import VersionSnapshots

T = TypeVar("T", bound=Test)
S = TypeVar("S", bound=Source)
G = TypeVar("G", bound="type[GuardRule[Any]]")
P = TypeVar("P", bound="type[StepRule[Any]]")

STATE_REMEDY = "Call it with the same modes each time, or compile it once for each of them."
OWN_REMEDY = "Change it before the first call, or keep it out of what the program reads."


class GuardRule(Generic[T]):
    """How one kind of test is checked."""

    #: When it is checked, from 0, the first; None: as its source says (see `check_writer.order_of`).
    order: ClassVar[int | None] = None
    #: Whether it is checked as soon as the value is loaded, before anything is read through that.
    on_load: ClassVar[bool] = False
    #: Whether the type of the value is known where it holds.
    tells_type: ClassVar[bool] = False
    #: Whether it speaks of sizes as they were, and says nothing of a call in which they vary.
    follows_sizes: ClassVar[bool] = False
    #: What the user can do so that it does not fail again.
    advice: ClassVar[str] = OWN_REMEDY

    def difference(self, test: T, source: Source, scope: Scope) -> str:
        """How the value at `source` differs from what `test` asks for, in words that follow the path; empty when it
        holds. Raises one of `READ_ERRORS` where the path leads nowhere."""
        raise NotImplementedError

    def emit(self, writer: CheckWriter, test: T, source: Source) -> None:
        """Writes lines that leave the check when `test` does not hold. Raises `LookupError` where this process does not
        have what the test names."""
        raise NotImplementedError

    def snapshot(self, snapshots: VersionSnapshots, test: T, source: Source) -> None:
        """Takes every word of memory that the answer depends on; raises `Unstable` where there are none."""
        raise NotImplementedError

    def remedy(self, test: T, source: Source) -> str:
        """What the user can do so that this guard does not fail again."""
        return STATE_REMEDY if isinstance(source, State) else self.advice

    def place(self, split: Split, guard: Guard, test: T) -> None:
        """Adds the guard to those on the call or those on static things, or parts of it to both."""
        static = split.is_static(guard.source) and all(map(split.is_static, test.reads()))
        (split.static if static else split.call).append(guard)


class StepRule(Generic[S]):
    """How one kind of step is taken."""

    def read(self, source: S, scope: Scope) -> Any:
        """The value at `source`; raises one of `READ_ERRORS` where the path leads nowhere."""
        raise NotImplementedError

    def text(self, writer: CheckWriter, source: S) -> str:
        """An expression for the value at `source`; its base and keys are loaded by lines before it."""
        raise NotImplementedError

    def snapshot(self, snapshots: VersionSnapshots, source: S) -> Any:
        """The value at `source`, with every word taken that makes it the same object next time; raises `Unstable` where
        it must be read on every call."""
        raise NotImplementedError


GUARD_RULES: dict[type[Test], GuardRule[Any]] = {}
STEP_RULES: dict[type[Source], StepRule[Any]] = {}


def guard_rule(kind: type[Test]) -> Callable[[G], G]:
    """Enters the decorated class as the rule of tests of this kind."""

    def enter(rule: G) -> G:
        GUARD_RULES[kind] = rule()
        return rule

    return enter


def step_rule(kind: type[Source]) -> Callable[[P], P]:
    """Enters the decorated class as the rule of steps of this kind."""

    def enter(rule: P) -> P:
        STEP_RULES[kind] = rule()
        return rule

    return enter


def rule_of(test: T) -> GuardRule[T]:
    """The rule of a test; raises TypeError where there is none."""
    rule = GUARD_RULES.get(type(test))
    if rule is None:
        raise TypeError(f"not a test: {test!r}")
    return rule


def step_of(source: S) -> StepRule[S]:
    """The rule of the last step of a source; raises TypeError where there is none."""
    rule = STEP_RULES.get(type(source))
    if rule is None:
        raise TypeError(f"not a source: {source!r}")
    return rule
