"""Context variables: `variable.get()`, `set` and `reset`.

    token = LEVEL.set(3)           what `get` gives from here on; an effect, where it is left so
    y = x * LEVEL.get()
    LEVEL.reset(token)             what the caller's context had, again

What a variable holds is read again on each call, from the context of the caller.
"""

from __future__ import annotations

import contextvars
from typing import Any

from lampwork.capture.machine import Answer
from lampwork.capture.outside.overlay import Break
from lampwork.ir.operations import NoValue, context_value
from lampwork.ir.record import record
from lampwork.ir.reference import ObjectRef
from lampwork.ir.source import Source
from lampwork.ir.template import Call, Effect, SourceValue

_SET = ObjectRef("function", "lampwork.runtime.leave.post_graph", "set_context_value")


@record(frozen=False)
class _Written:
    """A variable that the program has set. `before`: what the caller's context had, `NoValue` where that was nothing;
    `value`: what it holds now."""

    variable: Any
    source: Source
    before: Any
    value: Any


class ContextVariables:
    """What one capture knows of context variables."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.written: dict[int, _Written] = {}
        #: Tokens that `set` gave, with the variable and what it held before, by id. A reset uses one up.
        self.tokens: dict[int, tuple[Any, _Written, Any]] = {}

    def effects(self, templates: Any) -> list[Effect]:
        """Variables that are left set."""
        changed = [each for each in self.written.values() if each.value is not each.before]
        return [Call(_SET, (SourceValue(each.source), templates.template(each.value))) for each in changed]

    def get(self, variable: Any, *default: Any) -> Any:
        """`variable.get(*default)`."""
        written = self.written.get(id(variable))
        if written is not None:
            found = written.value
            if found is NoValue:
                found = context_default(variable)
        else:
            source, found = self._read(variable, not default)
            if found is not NoValue:
                return self.world.loader.load(found, source)
        if found is not NoValue:
            return found
        if not default:
            raise Break("native-argument", f"the context variable {variable.name!r} has no value")
        return default[0]

    def _read(self, variable: Any, has_default: bool) -> tuple[Source, Any]:
        world = self.world
        origin = world.loader.origin(variable)
        if origin is None:
            raise Break("native-argument", "a context variable is used that the program has made")
        source = world.sources.context_value(origin.source, has_default)
        found = context_value(variable, has_default)
        if found is NoValue:
            world.guards.is_object(source, found)
        return source, found

    def set(self, variable: Any, value: Any) -> Any:
        """`variable.set(value)`: a token of another context stands for the one that eager gives."""
        written = self.written.get(id(variable))
        if written is None:
            source, found = self._read(variable, False)
            before = found if found is NoValue else self.world.loader.load(found, source)
            origin = self.world.loader.origin(variable)
            written = self.written[id(variable)] = _Written(variable, origin.source, before, before)
        token = contextvars.copy_context().run(variable.set, None)
        self.tokens[id(token)] = token, written, written.value
        written.value = value
        return token

    def reset(self, variable: Any, token: Any) -> None:
        """`variable.reset(token)` of a token that the program got."""
        known = self.tokens.pop(id(token), None)
        if known is None or known[1].variable is not variable:
            raise Break("native-argument", "a context variable is reset with a token from outside, or one that is used")
        written = known[1]
        written.value = known[2]
        self.world._keep.append(token)  # another one may not get its id


def context_default(variable: Any) -> Any:
    """The default that the variable was made with; `NoValue` where there is none."""
    return contextvars.Context().run(context_value, variable, True)


NATIVES: dict[Any, Answer] = {
    contextvars.ContextVar.get: lambda world, *args: world.context_variables.get(*args),
    contextvars.ContextVar.set: lambda world, *args: world.context_variables.set(*args),
    contextvars.ContextVar.reset: lambda world, *args: world.context_variables.reset(*args),
}
