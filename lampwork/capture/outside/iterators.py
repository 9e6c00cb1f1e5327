"""Iterators from outside: a loop that a break divided goes on in the continuation.

    for layer in self.layers:        the frames that go on hold an iterator over the layers
        x = layer(x)
        log(x)                       a break: the layers to come are elements of what is left of that iterator

What an iterator has yet to give is read without advancing it (`Remaining`), and named by its place behind where the
iterator stands: so an entry serves every turn of the loop whose elements are alike. How far the program went is an
effect. The function of a `map` or `filter` is called by the program, with what is left of the iterators beneath. An
iterator over a container that the program has changed is left to a native call, and so is one whose turns differ, from
the third entry on (`runtime/guards/varying.py`): each would be captured with all turns behind it.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

from lampwork.capture.machine import Answer
from lampwork.capture.machine.natives import INTRINSICS
from lampwork.capture.natives.effect_classes import ITERATORS
from lampwork.capture.outside.changes import dict_written, list_written
from lampwork.capture.outside.load import Loader
from lampwork.ir.operations import remaining
from lampwork.ir.source import Source
from lampwork.ir.template import AdvanceIterator, Effect, SourceValue

#: Iterators that may be followed.
FOLLOWED = frozenset({*ITERATORS, map, filter})


class Walk:
    """An iterator from outside, how many elements the program took from it, and whether it was told that none is left.

    `elements`: what the iterator had yet to give when the program met it, raw.
    """

    __slots__ = ("iterator", "source", "elements", "taken", "exhausted")

    def __init__(self, iterator: Any, source: Source, elements: Sequence[Any]) -> None:
        self.iterator, self.source, self.elements = iterator, source, elements
        self.taken, self.exhausted = 0, False


class Walks:
    """The iterators from outside that one capture follows."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self._walks: dict[int, Walk | None] = {}

    def follows(self, iterator: Any) -> bool:
        """Whether what is left of `iterator`, which came from outside, is known."""
        walk = self._walk(iterator)
        return walk is not None and not self._owner_written(iterator)

    def advance(self, iterator: Any) -> tuple[bool, Any]:
        """(True, the next element, loaded) or (False, None) at the end; guarded. `iterator` is one that is followed."""
        walk = self._walk(iterator)
        assert walk is not None
        loader = self.loader
        left = loader.sources.remaining(walk.source)
        if walk.exhausted or walk.taken == len(walk.elements):
            if not walk.exhausted:
                loader.guards.length_is(left, len(walk.elements))
            walk.exhausted = True
            return False, None
        element = walk.elements[walk.taken]
        source = loader.sources.item(left, walk.taken)
        loader.guards.type_is(source, type(element))
        walk.taken += 1
        return True, loader.load(element, source)

    def advance_in(self, world: Any, iterator: Any) -> tuple[bool, Any]:
        """`advance`; of a `map` or `filter`, with what their functions say of the elements."""
        kind = type(iterator)
        while True:
            found, element = self.advance(iterator)
            if not found or (kind is not map and kind is not filter):
                return found, element
            function, *given = element
            if kind is filter and (function is None or function is bool):
                if world.truth(given[0]):
                    return True, given[0]
                continue
            try:
                made = world.machine.call(function, tuple(given))
            except StopIteration:  # is not told from the end
                return False, None
            if kind is map:
                return True, made
            if world.truth(made):
                return True, given[0]

    def effects(self) -> list[Effect]:
        """How far iterators were taken."""
        moved = [walk for walk in self._walks.values() if walk is not None and (walk.taken or walk.exhausted)]
        return [AdvanceIterator(SourceValue(walk.source), walk.taken, walk.exhausted) for walk in moved]

    def _walk(self, iterator: Any) -> Walk | None:
        if id(iterator) not in self._walks:
            origin, walk = self.loader.origin(iterator), None
            if origin is not None and self.loader.tensors.policy.follows(origin.source):
                try:
                    walk = Walk(iterator, origin.source, remaining(iterator))
                except LookupError:
                    pass
            self._walks[id(iterator)] = walk
        return self._walks[id(iterator)]

    def _owner_written(self, iterator: Any) -> bool:
        """Whether the program has changed what it goes over, or what the iterators that it takes from go over."""
        loader = self.loader
        for part in gc.get_referents(iterator):
            if type(part) is tuple or type(part) in FOLLOWED:
                if self._owner_written(part):
                    return True
                continue
            origin = loader.by_raw.get(id(part))
            if origin is None:
                continue
            overlay, listed = loader.dicts.get(id(origin.value)), loader.lists.get(id(origin.value))
            if overlay is not None and dict_written(overlay, loader):
                return True
            if listed is not None and (listed.changed or listed.state == "appended"):
                return True
            if listed is not None and listed.state == "settled" and list_written(listed, loader):
                return True
        return False


def _next(world: Any, *args: Any, **kwargs: Any) -> Any:
    if kwargs or not 1 <= len(args) <= 2 or not world.families.opaque.follows(args[0]):
        return INTRINSICS[next](world, *args, **kwargs)
    found, value = world.walks.advance_in(world, args[0])
    if found:
        return value
    if len(args) == 1:
        raise StopIteration
    return args[1]


NATIVES: dict[Any, Answer] = {next: _next}
