"""Which of many entries a call tries first, by what told them apart before.

Entries are tried one after another, and each checks its guards: with 64 of them a call costs 64 checks. A `Dispatch`
learns a few *features* of calls (the shape of an argument, the value of another, an attribute of the model), and keeps
a table from their values to the entry that served such a call. A feature is added when the table named an entry that
did not serve: it is what the guard that failed looked at. So the features are those that tell entries apart, and no
entry's guards are gone through when there is no need.

The table decides nothing: the entry that it names checks all of its guards, and where it does not serve, the others
are tried in turn. Where no entry has served for many calls, and none is made any more, as for a list that grows by one
each call, that is done for some calls alone; the others run eagerly without a look.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any

import torch

from lampwork.ir.guard import ArgumentCount, Equals, Guard, IsObject, LengthIs, TensorIs, TypeIs
from lampwork.ir.record import record
from lampwork.ir.source import Source
from lampwork.runtime.guards.check_writer import CheckWriter
from lampwork.runtime.guards.failures import why_not
from lampwork.runtime.guards.interpreter import Scope

#: Features of a call that are looked at; what they do not tell apart is tried in turn.
MOST_FEATURES = 8
#: Looks at failing guards: programs that no feature tells apart pay for no more.
MOST_ATTEMPTS = 4 * MOST_FEATURES
#: Rows of the table; a program whose sizes never repeat would fill memory.
MOST_ROWS = 4096

#: Calls in a row that nothing serves before some are not looked at, and how many of these come to one that is, at most.
UNSERVED, MOST_UNLOOKED = 16, 64

Serve = Callable[[Any, tuple, dict], Any]
#: (function, args, kwargs) -> something hashable.
Feature = Callable[[Any, tuple, dict], Any]


class Dispatch:
    """The table of one compiled function. Threads may use it at once: what one writes another sees whole."""

    def __init__(self) -> None:
        #: The features and the rows, changed as one.
        self._state: tuple[tuple[Feature, ...], dict[Any, Serve]] = ((), {})
        self._known: set[tuple] = set()
        self._attempts = 0
        #: How many calls in a row nothing has served, and how many from now on are not looked at.
        self.unserved = self.unlooked = 0

    def first(self, function: Callable, args: tuple, kwargs: dict) -> tuple[Any, Serve | None]:
        """A place in the table, and what served the last call that came there; None where none did."""
        features, rows = self._state
        if len(features) == 1:
            key: Any = features[0](function, args, kwargs)
        else:
            key = tuple([feature(function, args, kwargs) for feature in features])
        return (rows, key), rows.get(key)

    def served(self, place: Any, serve: Serve) -> None:
        """`serve` served the call for which `first` gave `place`."""
        rows, key = place
        if len(rows) >= MOST_ROWS:
            rows.clear()
        rows[key] = serve

    def nothing_served(self) -> None:
        """No entry serves a call, and none is made."""
        self.unserved += 1
        self.unlooked = min(max(0, self.unserved - UNSERVED), MOST_UNLOOKED)

    def forget(self) -> None:
        """Starts again: an entry is gone, and nothing here keeps what its guards name."""
        self._state = ((), {})
        self._known.clear()
        self.unserved = self.unlooked = 0

    def missed(self, guards: Sequence[Guard], function: Callable, args: tuple, kwargs: dict) -> None:
        """The entry with these guards, which the table named, does not serve the call: what its failing guard looks at
        is a feature from now on."""
        if self._attempts >= MOST_ATTEMPTS or len(self._state[0]) >= MOST_FEATURES:
            return
        self._attempts += 1
        scope = Scope(function, args, kwargs)
        index = next((index for index, guard in enumerate(guards) if why_not(guard, scope)), None)
        if index is None:  # it holds by now
            return
        guard = guards[index]
        for text in (*_TEXTS.get(type(guard.test), ()), ""):
            name = (text, guard.source) if text else (guard,)
            if name not in self._known:
                self._known.add(name)
                try:
                    feature = _feature(guards[:index], guard, text)
                except LookupError:  # this process does not have what a guard names
                    return
                self._state = ((*self._state[0], feature), {})
                return


def _feature(before: Sequence[Guard], guard: Guard, text: str) -> Feature:
    """What `guard` looks at, as a function of a call that gives something hashable: `text` with the value in place of
    `{}`; without a text, whether the guard holds. Of `before` the guards on the way to the value are checked first:
    reading it runs no code of the program."""
    on_the_way: set[int] = set()
    steps: list[Source] = [guard.source, *guard.test.reads()]
    while steps:
        step = steps.pop()
        if id(step) not in on_the_way:
            on_the_way.add(id(step))
            parent = step.parent()
            steps += [*step.keys(), *([parent] if parent is not None else ())]
    needed = [each for each in before if id(each.source) in on_the_way and not each.test.reads()]
    if not text:
        holds = CheckWriter([*needed, guard], ()).function()
        return lambda function, args, kwargs: holds(function, args, kwargs) is not None
    return _FeatureWriter(needed, (guard.source,), shown=text).function()


@record(frozen=False)
class _FeatureWriter(CheckWriter):
    """Writes a check that returns a text of each value in place of the value."""

    shown: str = ""

    def values(self) -> str:
        self.add_names({"is_tensor": _TENSORS.__contains__, "whole": _whole, "plain": _plain})
        return "".join(f"{self.shown.format(self.load(source))}, " for source in self.reads)


_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})

#: What is looked at, for each kind of test: the first that is no feature yet.
_TEXTS: dict[type, tuple[str, ...]] = {
    TensorIs: ("{0}.shape if is_tensor(type({0})) else id(type({0}))", "whole({0})"),
    Equals: ("plain({0})",),
    LengthIs: ("len({0})",),
    TypeIs: ("id(type({0}))",),
    IsObject: ("id({0})",),
    ArgumentCount: ("(len(args), *kwargs)",),
}


def _whole(value: Any) -> Any:
    """What guards look at of a tensor, but for its device and flags that seldom differ."""
    if type(value) not in _TENSORS or value.layout != torch.strided:
        return id(type(value))
    return value.shape, value.stride(), value.dtype, value.requires_grad


_PLAIN = frozenset({int, bool, float, str, bytes, NoneType, torch.dtype, torch.device})


def _plain(value: Any) -> Any:
    """Plain data as a key that tells 1, 1.0 and True apart."""
    kind = type(value)
    if kind is int or kind is NoneType:
        return value
    if kind in _PLAIN:
        return kind.__name__, value
    if kind is tuple:
        return tuple(map(_plain, value))
    return id(kind)
