"""What differed between two calls of a compiled function, if that was sizes, integers, and texts that name others.

A call that misses an entry by nothing but these is worth an entry in which they are symbols
(`capture/outside/dynamic_sizes.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch

from lampwork import _torch
from lampwork.ir.guard import Equals, Guard, HasKey, TensorIs, Test, held_number
from lampwork.ir.operations import Cycled, remaining
from lampwork.ir.source import (
    Item,
    Remaining,
    Source,
    any_element,
    by_any_key,
    from_base,
    is_open,
    is_source,
    is_static,
)
from lampwork.runtime.guards.failures import why_not
from lampwork.runtime.guards.interpreter import READ_ERRORS, Scope, read, tensor_is
from lampwork.runtime.guards.rules import rule_of

#: (source, "shape" | "stride" | "value" | "item" | "iterator" | "text", dimension).
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


def between_modules(found: frozenset[Varying]) -> frozenset[Varying]:
    """Those of them that may be symbols where the entries were made for other modules: numbers in which blocks of a
    model differ. Modules with other sizes of weights, or other strides of a convolution (parts of a tuple, tensors of
    one integer) are other kinds of blocks, which are faster with their numbers known."""
    static = [(source, kind) for source, kind, _ in found if is_static(source)]
    if any(kind in ("shape", "stride") for _, kind in static):
        return frozenset()
    parts = {source for source, kind in static if kind == "value" and _container(source) is not None}
    return frozenset(each for each in found if each[0] not in parts and each[1] != "item")


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
    texts = _texts(guards, scope)
    renamed = _Renamed(dict(texts.values()))
    found: set[Varying] = {(any_element(source), "text", 0) for source in texts}
    for guard in guards:
        if held_number(guard.test) is not None and why_not(guard, scope):
            found.add((guard.source, "item", 0))
        if rule_of(guard.test).follows_sizes or guard.source in texts:
            continue
        at = renamed.path(guard.source) if texts else guard.source  # what the text leads to now
        if at is guard.source and not why_not(guard, scope):
            continue
        anywhere = by_any_key(at, renamed.names.values())
        changed = _changes(at, guard.test, scope, anywhere is not None)
        if changed is None and not texts:
            return _indices(guards, scope)
        for source, kind, axis in changed or ():
            found.add((by_any_key(source, renamed.names.values()) or source, kind, axis))
    return frozenset(found)


def _indices(guards: Sequence[Guard], scope: Scope) -> frozenset[Varying] | None:
    """As `_differences`, where integers differ that choose an element of a list or dict, and all else that differs is
    about the element chosen: `cache.layers[self.layer_idx]`."""
    found = _that_differ(guards, scope, int)
    if not found:
        return None
    renamed = _Renamed(dict(found.values()))
    varying: set[Varying] = {(source, "value", 0) for source in found}
    for guard in guards:
        if rule_of(guard.test).follows_sizes or guard.source in found or not why_not(guard, scope):
            continue
        at = renamed.path(guard.source)
        if at is not guard.source and not why_not(replace(guard, source=at), scope):
            continue
        changed = _changes(guard.source, guard.test, scope, False)
        if changed is None:
            return None
        varying |= changed
    return frozenset(varying)


class _Renamed:
    """Paths with other keys of dicts, and other indices of lists: `names` says which, before and now."""

    def __init__(self, names: dict[Any, Any]) -> None:
        self.names = names
        self._made: dict[int, Source] = {}

    def path(self, source: Source) -> Source:
        """`source` with the keys replaced; itself where it has none of them."""
        found = self._made.get(id(source))
        if found is None:
            base = source.parent()
            found = source
            if base is not None:
                moved = self.path(base)
                if isinstance(source, Item) and not is_source(source.key) and is_open(source, self.names):
                    found = Item(moved, self.names[source.key])
                elif moved is not base:
                    found = from_base(source, moved)
            self._made[id(source)] = found
        return found


def _changes(source: Source, test: Test, scope: Scope, is_chosen: bool) -> set[Varying] | None:
    """The numbers in which the value at `source` differs from what `test` asks for; None where it differs otherwise.
    `is_chosen`: a text that varies leads to it."""
    try:
        value = read(source, scope)
    except READ_ERRORS:
        return None
    if isinstance(test, TensorIs):
        return _tensor_changes(source, test, value, is_chosen)
    if is_chosen and isinstance(test, Equals) and type(test.value) is type(value) is str and value != test.value:
        return {(source, "text", 0)}
    return _number_changes(source, test.value, value) if isinstance(test, Equals) else None


def _that_differ(guards: Sequence[Guard], scope: Scope, kind: type) -> dict[Source, tuple[Any, Any]]:
    """The values of a class that differ from what guards ask for: by source, before and now."""
    found: dict[Source, tuple[Any, Any]] = {}
    for guard in guards:
        if isinstance(guard.test, Equals) and type(guard.test.value) is kind:
            try:
                now = read(guard.source, scope)
            except READ_ERRORS:
                continue
            if type(now) is kind and now != guard.test.value:
                found[guard.source] = (guard.test.value, now)
    return found


def _texts(guards: Sequence[Guard], scope: Scope) -> dict[Source, tuple[str, str]]:
    """Texts that differ and that lead to what the program reads, as keys of dicts: by source, before and now.

    Others say what the program does (`mode == "train"`), so that what differs beside them is another case of it.
    """
    found = _that_differ(guards, scope, str)
    if not found:
        return found
    names = dict(found.values())
    keys: set[str] = set()
    seen: set[int] = set()
    for guard in guards:
        step: Source | None = guard.source
        while step is not None and id(step) not in seen:
            seen.add(id(step))
            if isinstance(step, Item) and not is_source(step.key) and is_open(step, names):
                keys.add(step.key)
            step = step.parent()
        if isinstance(guard.test, HasKey) and type(guard.test.key) is str:
            keys.add(guard.test.key)
    return {source: pair for source, pair in found.items() if pair[0] in keys}


def _tensor_changes(source: Source, test: TensorIs, value: object, is_chosen: bool) -> set[Varying] | None:
    kinds: tuple[type, ...] = (torch.Tensor,)
    is_weight = is_chosen or is_static(source)
    if is_weight:
        kinds = (torch.Tensor, torch.nn.Parameter)
    if getattr(type(value), "__torch_function__", None) is _torch.no_torch_function:  # nobody is asked for its sizes
        kinds = (*kinds, type(value)) if _named(type(value)) == test.tensor_type else kinds
    if not isinstance(value, torch.Tensor) or type(value) not in kinds:
        return None
    if value.layout is not torch.strided or value.dim() != len(test.shape):
        return None
    left_open: dict = {"shape": (None,) * value.dim(), "strides": (None,) * value.dim()}
    if is_weight:  # others of its size may be frozen, or no parameters
        kind = _named(type(value))
        left_open |= {"requires_grad": value.requires_grad, "is_leaf": None, "tensor_type": kind}
    if tensor_is(value, TensorIs(**{**vars(test), **left_open})):
        return None
    found: set[Varying] = set()
    for kind, before, now in (("shape", test.shape, value.shape), ("stride", test.strides, value.stride())):
        found |= {(source, kind, axis) for axis, (a, b) in enumerate(zip(before, now)) if a is not None and a != b}
    return found if found or not is_weight else None


def _named(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


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
