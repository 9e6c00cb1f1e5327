"""`StaticGuards`: the guards of an entry that do not look at the call's arguments, checked by stamps where possible.

    state = static.state
    if compare(state.address): state = static.refresh(function)     # None: some guard does not hold
    ... state.values

A state is immutable: while its words compare equal, the static guards hold and `values` are the very objects at the
static sources, tensors' data included.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from weakref import ref

import torch

from lampwork.ir.guard import ArgumentCount, Distinct, Guard, SameObject, SizeRelation, StorageGroups, TensorIs
from lampwork.ir.source import Item, Source, is_source, is_static
from lampwork.runtime.differences import evaluate
from lampwork.runtime.guards import Check, compile_check
from lampwork.runtime.reading import READ_ERRORS
from lampwork.runtime.stamps import Overlap, Stamps, Unstable, compare, supported
from lampwork.runtime.steady import SteadyCheck, steady_check

#: Stamping costs a few hundred checks. When stamps keep failing, so many calls pass before the next attempt; doubled
#: each time.
FIRST_PAUSE, LONGEST_PAUSE = 32, 512


#: Compiling the check of a large model takes longer than evaluating its guards a few times. The last two of these see
#: which tensors stay: a steady check, where there is one by then, is much less to compile.
CHECKS_BEFORE_COMPILING = 5
#: So few static guards are checked one by one with the others: that costs less than the native comparison.
FEW_GUARDS = 12


#: So many times a steady check is made; whatever changes more often is checked in full.
STEADY_CHECKS = 4


class State:
    """What the static guards of one entry found, and the words of memory by which it is known to be unchanged."""

    __slots__ = ("values", "left", "generation", "ids", "apart", "address", "_table", "_keep")

    def __init__(
        self,
        values: list[Any],
        left: Callable | None,
        table: array,
        keep: Any,
        pinned: Sequence[Any],
        generation: object = None,
    ) -> None:
        self.values = values
        #: Stays the same object while the weights among `values` do, where they are in memory included; None: it is
        #: not known.
        self.generation = generation
        self.left = left
        self.ids = frozenset(map(id, pinned))
        self.apart = Overlap([value for value in pinned if issubclass(type(value), torch.Tensor)]).apart
        self._table, self._keep = table, keep
        self.address = table.buffer_info()[0]


class StaticGuards:
    """`guards` on static sources. `reads[k]` is read into `values[positions[k]]` of a list of `size`.

    `weights`: those of `reads` that a state's `generation` speaks of; all of them by default.
    `others`: static sources that the call's own objects must be different from, and apart from in memory.
    Raises `LookupError` as `compile_check` does.
    """

    def __init__(
        self,
        guards: Sequence[Guard],
        reads: Sequence[Source],
        positions: Sequence[int],
        size: int,
        others: Sequence[Source],
        weights: Sequence[Source] | None = None,
    ) -> None:
        self._weights = reads if weights is None else weights
        self._guards, self._reads, self._others = tuple(guards), tuple(reads), tuple(others)
        self._positions, self._size = tuple(positions), size
        self._checks = 0
        self._compiled: Check | None = None
        self._changing = array("Q", [1, 0, 0])  # a record that never compares equal: its own address, expected to be 0
        self._changing[1] = self._changing.buffer_info()[0]
        self._pause = 0
        self._next_pause = FIRST_PAUSE
        self.state: State | None = None
        #: For while stamps do not hold: see `steady`; what the last full check found; how often one may be made.
        self._steady: SteadyCheck | None = None
        self._found: tuple | None = None
        self._steady_left = STEADY_CHECKS

    def _check(self, function: Any) -> tuple | None:
        """The values at reads and others, None when some guard does not hold. Compiled when it is asked for often."""
        self._checks += 1
        if self._compiled is None and self._checks > CHECKS_BEFORE_COMPILING:
            try:
                self._compiled = compile_check(self._guards, (*self._reads, *self._others))
            except LookupError:  # a function or module that a guard names changed or went since the entry was made
                return None
        if self._compiled is not None:
            return self._compiled(function, (), {})
        return evaluate(self._guards, (*self._reads, *self._others), function, (), {})

    def refresh(self, function: Any) -> State | None:
        """Check every static guard, one by one; the new state, None when one does not hold."""
        if self._pause and self._steady is not None:
            found = self._steady(function)
            if found is not None:
                self._pause -= 1
                return self._unstamped(found, self._steady if self._steady.covers(self._weights) else None)
            self._steady = None
        found = self._check(function)
        if found is None:
            return None
        if not supported() or self._pause:
            self._pause = max(self._pause - 1, 0)
            self._look_for_steady(found)
            return self._unstamped(found)
        if self.state is not None:
            self._pause = self._next_pause
            self._next_pause = min(self._next_pause * 2, LONGEST_PAUSE)
        state = self._stamped(function)
        if state is None:  # what the program reads cannot be stamped: gradients, which each training step makes anew
            self._pause = self._next_pause
            self._next_pause = min(self._next_pause * 2, LONGEST_PAUSE)
            return self._unstamped(found)
        self.state = state
        return state

    def _look_for_steady(self, found: tuple) -> None:
        """Two full checks in a row find which tensors stay. Nothing is kept alive between them: others may go."""
        before, self._found = self._found, None
        if not self._pause or self._checks < CHECKS_BEFORE_COMPILING - 1 or not self._steady_left:
            return
        if before is None:
            self._found = tuple([ref(value) if isinstance(value, torch.Tensor) else None for value in found])
            return
        self._steady_left -= 1
        stays = [reference is not None and reference() is value for reference, value in zip(before, found)]
        self._steady = steady_check(self._guards, (*self._reads, *self._others), stays, found)

    def _values(self, found: tuple) -> list[Any]:
        values: list[Any] = [None] * self._size
        for position, value in zip(self._positions, found):
            values[position] = value
        return values

    def _unstamped(self, found: tuple, generation: object = None) -> State:
        # For one call, whose own objects were there when the others were found: nothing need be kept alive for it,
        # least of all gradients that the program is about to replace.
        return State(self._values(found), None, self._changing, self, found[len(self._reads) :], generation)

    def _stamped(self, function: Any) -> State | None:
        """A state that the next calls compare with; None where a value that is read cannot be stamped."""
        stamps = Stamps(function)
        for guard in self._guards:
            stamps.add_guard(guard)
        try:
            for source in (*self._reads, *self._others):
                value = stamps.value(source)
                if issubclass(type(value), torch.Tensor):
                    stamps.tensor(value)
        except (Unstable, *READ_ERRORS):
            return None
        table = stamps.table()
        # The guards are checked after the words were written down, and the words compared after that: what another
        # thread does in between cannot be stamped as having been checked.
        found = self._check(function)
        if found is None or compare()(table.buffer_info()[0]):
            return None
        left = compile_check(stamps.left, ()) if stamps.left else None
        pinned = found[len(self._reads) :]
        return State(self._values(found), left, table, (stamps.keep, pinned), pinned, stamps)


class Split:
    """An entry's guards, parted into those on the call and those on static things.

    `call`: guards to check on every call. `static`: see `StaticGuards`. `different`, `apart`: call sources that must
    differ from, and not overlap in memory with, every source of `others`.
    """

    def __init__(self, guards: Sequence[Guard]) -> None:
        self.call: list[Guard] = []
        self.static: list[Guard] = []
        self.others: list[Source] = []
        self.different: list[Source] = []
        self.apart: list[Source] = []
        self._known: dict[int, bool] = {}
        for guard in guards:
            self._place(guard)
        if (
            len(self.static) <= FEW_GUARDS
            and not self.others
            and not any(isinstance(g.test, TensorIs) for g in self.static)
        ):
            self.call, self.static = list(guards), []

    def is_static(self, source: Source) -> bool:
        """As `ir.source.is_static`, remembered for the steps that paths share."""
        known = self._known.get(id(source))
        if known is None:
            base: Any = getattr(source, "base", None)
            simple = base is None or (type(source) is Item and is_source(source.key))
            known = self._known[id(source)] = is_static(source) if simple else self.is_static(base)
        return known

    def _place(self, guard: Guard) -> None:
        test = guard.test
        if isinstance(test, Distinct):
            self._distinct(guard, (guard.source, *test.others))
        elif isinstance(test, StorageGroups):
            self._aliasing(guard, test)
        elif isinstance(test, ArgumentCount) or not self.is_static(guard.source):
            self.call.append(guard)
        elif isinstance(test, SameObject) and not self.is_static(test.other):
            self.call.append(guard)
        elif isinstance(test, SizeRelation) and not all(self.is_static(size.source) for size in test.sizes):
            self.call.append(guard)
        else:
            self.static.append(guard)

    def _distinct(self, guard: Guard, sources: tuple[Source, ...]) -> None:
        call = [source for source in sources if not self.is_static(source)]
        static = [source for source in sources if self.is_static(source)]
        if len(call) > 1:
            self.call.append(replace(guard, source=call[0], test=Distinct(tuple(call[1:]))))
        if len(static) > 1:
            self.static.append(replace(guard, source=static[0], test=Distinct(tuple(static[1:]))))
        if call and static:
            self.different.extend(call)
            self._pin(static)

    def _aliasing(self, guard: Guard, test: StorageGroups) -> None:
        static = [self.is_static(source) for source in test.sources]
        if any(len({static[index] for index, _ in group}) > 1 for group in test.groups):
            self.call.append(guard)  # an argument overlaps a weight: all of it on every call
            return
        for kind, guards in ((False, self.call), (True, self.static)):
            chosen = [index for index, each in enumerate(static) if each is kind]
            if len(chosen) > 1:
                renumber = {index: position for position, index in enumerate(chosen)}
                groups = tuple(
                    tuple((renumber[index], offset) for index, offset in group)
                    for group in test.groups
                    if static[group[0][0]] is kind
                )
                sources = tuple(test.sources[index] for index in chosen)
                guards.append(replace(guard, source=sources[0], test=StorageGroups(sources, groups)))
        if any(static) and not all(static):
            self.apart.extend(source for source, each in zip(test.sources, static) if not each)
            self._pin([source for source, each in zip(test.sources, static) if each])

    def _pin(self, sources: Sequence[Source]) -> None:
        known = {id(source) for source in self.others}
        self.others.extend(source for source in sources if id(source) not in known)
