"""What differed between two calls of a compiled function, if that was sizes and integers alone.

A call that misses an entry by nothing but these is worth an entry in which they are symbols
(`capture/outside/dynamic_sizes.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch

from lampwork.ir.guard import Equals, Guard, TensorIs
from lampwork.ir.operations import Cycled, remaining
from lampwork.ir.source import Item, Remaining, Source
from lampwork.runtime.guards.failures import why_not
from lampwork.runtime.guards.interpreter import READ_ERRORS, Scope, read, tensor_is
from lampwork.runtime.guards.rules import rule_of

#: (source, "shape" | "stride" | "value" | "iterator", dimension).
Varying = tuple[Source, str, int]

#: Entries of a continuation from which on no iterator is followed that keeps a call from one: a turn, one with numbers
#: that vary, and what follows the last turn. See `capture/outside/iterators.py`.
MOST_TURNS = 3


def what_varied(
    entries: Iterable[Sequence[Guard]], known: frozenset[Varying], function: Callable, args: tuple, kwargs: dict
) -> frozenset[Varying]:
    """The integers beside those `known` to vary that keep this call from the entry that it misses by the fewest; none
    where something else keeps it from every entry. `entries`: the guards of each.

    Entries that it misses by what is known, or by a relation alone, tell nothing: they are other cases of the program
    (before a milestone of a schedule), in which what varies in this one need not be read.
    """
    best: frozenset[Varying] = frozenset()
    for guards in entries:
        found = _differences(guards, Scope(function, args, kwargs))
        new = found - known if found is not None else None
        if new and (not best or len(new) < len(best)):
            best = (new | _beside(new, guards)) - known
    return best


def what_turns(guards: Sequence[Guard], function: Callable, args: tuple, kwargs: dict) -> frozenset[Varying]:
    """The iterators from outside that keep this call from an entry, by its guards; not those that go over a few
    elements again and again, which are worth an entry each."""
    scope = Scope(function, args, kwargs)
    found = ((guard, _iterator(guard.source)) for guard in guards)
    turning = {iterator for guard, iterator in found if iterator is not None and why_not(guard, scope)}
    return frozenset((iterator, "iterator", 0) for iterator in turning if not _comes_again(iterator, scope))


def _comes_again(iterator: Source, scope: Scope) -> bool:
    """Whether it goes over so few elements that its turns are few."""
    try:
        left = remaining(read(iterator, scope))
    except (*READ_ERRORS, LookupError):
        return False
    return type(left) is Cycled and len(left.turn) <= MOST_TURNS + 1


def _iterator(source: Source) -> Source | None:
    """The iterator whose elements-to-come the value is one of, or lies in."""
    at: Source | None = source
    while at is not None and not isinstance(at, Remaining):
        at = at.parent()
    return None if at is None else at.base


def _beside(found: frozenset[Varying], guards: Sequence[Guard]) -> set[Varying]:
    """Floats in a list or tuple of which another one varies: rewards, weights of losses. Else each would be found to
    vary in a compile of its own."""
    bases = {_container(source) for source, kind, _ in found if kind == "value"} - {None}
    if not bases:
        return set()
    floats = [each.source for each in guards if isinstance(each.test, Equals) and type(each.test.value) is float]
    return {(source, "value", 0) for source in floats if _container(source) in bases}


def _container(source: Source) -> Source | None:
    """What the value is an element of."""
    return source.base if isinstance(source, Item) and type(source.key) is int else None


def _differences(guards: Sequence[Guard], scope: Scope) -> frozenset[Varying] | None:
    found: set[Varying] = set()
    for guard in guards:
        test = guard.test
        if rule_of(test).follows_sizes:
            continue
        if not why_not(guard, scope):
            continue
        try:
            value = read(guard.source, scope)
        except READ_ERRORS:
            return None
        if isinstance(test, TensorIs):
            changed = _tensor_changes(guard.source, test, value)
        elif isinstance(test, Equals):
            changed = _number_changes(guard.source, test.value, value)
        else:
            return None
        if changed is None:
            return None
        found |= changed
    return frozenset(found)


def _tensor_changes(source: Source, test: TensorIs, value: object) -> set[Varying] | None:
    if type(value) is not torch.Tensor or value.layout is not torch.strided or value.dim() != len(test.shape):
        return None
    open_layout = TensorIs(**{**vars(test), "shape": (None,) * value.dim(), "strides": (None,) * value.dim()})
    if tensor_is(value, open_layout):
        return None
    found: set[Varying] = set()
    for kind, before, now in (("shape", test.shape, value.shape), ("stride", test.strides, value.stride())):
        found |= {(source, kind, axis) for axis, (a, b) in enumerate(zip(before, now)) if a is not None and a != b}
    return found


def _number_changes(source: Source, before: object, now: object) -> set[Varying] | None:
    if type(before) is type(now) and type(now) in (int, float):
        return {(source, "value", 0)}
    if type(before) is type(now) is tuple and len(before) == len(now):
        found: set[Varying] = set()
        for index, (a, b) in enumerate(zip(before, now)):
            if type(a) is type(b) and a == b:
                continue
            changed = _number_changes(Item(source, index), a, b)
            if changed is None:
                return None
            found |= changed
        return found
    return None
