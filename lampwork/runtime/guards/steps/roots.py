"""Steps that begin a path: the callable, its arguments, modules, objects by name, the state of the process."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from lampwork._torch import STATE
from lampwork.ir.reference import find
from lampwork.ir.source import Argument, Keyword, Named, PythonModule, Root, State
from lampwork.runtime.guards.memory_words import Unstable
from lampwork.runtime.guards.rules import StepRule, step_rule

if TYPE_CHECKING:
    from lampwork.runtime.guards.check_writer import CheckWriter
    from lampwork.runtime.guards.interpreter import Scope
    from lampwork.runtime.guards.version_snapshots import VersionSnapshots


@step_rule(Root)
class RootRule(StepRule[Root]):
    def read(self, source: Root, scope: Scope) -> Any:
        return scope.function

    def text(self, writer: CheckWriter, source: Root) -> str:
        return "function"

    def snapshot(self, snapshots: VersionSnapshots, source: Root) -> Any:
        return snapshots.function


@step_rule(Argument)
class ArgumentRule(StepRule[Argument]):
    def read(self, source: Argument, scope: Scope) -> Any:
        return scope.args[source.index]

    def text(self, writer: CheckWriter, source: Argument) -> str:
        return f"args[{source.index}]"

    def snapshot(self, snapshots: VersionSnapshots, source: Argument) -> Any:
        raise Unstable("another object in each call")


@step_rule(Keyword)
class KeywordRule(StepRule[Keyword]):
    def read(self, source: Keyword, scope: Scope) -> Any:
        return scope.kwargs[source.name]

    def text(self, writer: CheckWriter, source: Keyword) -> str:
        return f"kwargs[{source.name!r}]"

    def snapshot(self, snapshots: VersionSnapshots, source: Keyword) -> Any:
        raise Unstable("another object in each call")


@step_rule(PythonModule)
class PythonModuleRule(StepRule[PythonModule]):
    def read(self, source: PythonModule, scope: Scope) -> Any:
        return sys.modules[source.name]

    def text(self, writer: CheckWriter, source: PythonModule) -> str:
        return f"sys.modules[{source.name!r}]"

    def snapshot(self, snapshots: VersionSnapshots, source: PythonModule) -> Any:
        snapshots.entry(sys.modules, source.name)
        return sys.modules[source.name]


@step_rule(Named)
class NamedRule(StepRule[Named]):
    def read(self, source: Named, scope: Scope) -> Any:
        return find(source.module, source.qualname)

    def text(self, writer: CheckWriter, source: Named) -> str:
        return writer.constant(find(source.module, source.qualname))

    def snapshot(self, snapshots: VersionSnapshots, source: Named) -> Any:
        found = find(source.module, source.qualname)
        snapshots.keep.append(found)
        return found


@step_rule(State)
class StateRule(StepRule[State]):
    def read(self, source: State, scope: Scope) -> Any:
        return STATE[source.name]()

    def text(self, writer: CheckWriter, source: State) -> str:
        return f"{writer.constant(STATE[source.name])}()"

    def snapshot(self, snapshots: VersionSnapshots, source: State) -> Any:
        raise Unstable("kept by the process, in no object")
