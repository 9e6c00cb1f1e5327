"""`StaticGuards`: the guards of an entry that do not look at the call's arguments, checked by version snapshots
where possible.

    state = static.state
    if compare(state.address): state = static.refresh(function)     # None: some guard does not hold
    ... state.values, state.now(function, ())

A state is immutable. While its words compare equal, the static guards hold and `values` are the very objects at the
static sources, tensors' data included. It is forgotten when the program lets go of something that it relies on
(`kept.py`). What changes from call to call is left to `StaticState.left`: gradients from the start, other things once
their words have differed once or twice.
"""

from __future__ import annotations

import sys
import weakref
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from lampwork.ir.guard import Guard, TensorIs
from lampwork.ir.source import Source
from lampwork.runtime.guards.compile import Check, compile_check
from lampwork.runtime.guards.failures import evaluate
from lampwork.runtime.guards.kept import has_own_life, kept
from lampwork.runtime.guards.memory_words import compare, supported
from lampwork.runtime.guards.overlap import Overlap
from lampwork.runtime.guards.rules import rule_of
from lampwork.runtime.guards.version_snapshots import VersionSnapshots
from lampwork.turns import give_way

#: A snapshot costs a few hundred checks. So many are taken one after the other when they fail, which finds out what
#: changes; then so many calls pass before the next attempt; doubled each time.
ATTEMPTS, FIRST_PAUSE, LONGEST_PAUSE = 10, 32, 512
#: What failed so often (see `VersionSnapshots.differing`) is looked at on every call, and no snapshot is taken of it:
#: what is replaced once, as all weights are when a checkpoint is loaded, is not what changes in each step.
FAILURES = 2
#: After so many states were forgotten since something was gone, what they rely on is kept alive: a state that is
#: forgotten in each call is of no use.
MOST_FORGOTTEN = 20


#: Compiling the check of a large model takes longer than evaluating its guards a few times.
CHECKS_BEFORE_COMPILING = 5
#: So few static guards are checked one by one with the others: that costs less than the native comparison.
FEW_GUARDS = 12

_DIFFERS = array("Q", [1, 0, 0])  # a record that never compares equal: its own address, expected to be 0
_DIFFERS[1] = _DIFFERS.buffer_info()[0]


class StaticState:
    """What the static guards of one entry found, and the words of memory by which it is known to be unchanged.

    `values`: those that stay; where they are not the `whole`, `now` completes them for a call.
    """

    __slots__ = (
        "values",
        "whole",
        "held_weakly",
        "stands",
        "left",
        "positions",
        "others",
        "generation",
        "ids",
        "disjoint",
        "address",
        "_table",
        "_keep",
    )

    def __init__(
        self,
        values: list[object],
        table: array,
        keep: object,
        pinned: Sequence[Any],
        generation: object = None,
        left: Check | None = None,
        positions: Sequence[int | None] = (),
        others: Sequence[int] = (),
        held_weakly: Sequence[tuple[int, weakref.ref]] = (),
        stands: Collection[bool] = (True,),
    ) -> None:
        self.values = values
        self.whole = left is None and not held_weakly
        #: Positions in `values` with weak references to what belongs there.
        self.held_weakly = held_weakly
        #: Empty once something is gone that the state relies on.
        self.stands = stands
        #: Stays the same object while the weights among `values` do, where they are in memory included; None: it is
        #: not known.
        self.generation = generation
        #: Checks what snapshots do not cover, and returns the values at `positions`; see `per_call.py`. The values of
        #: the numbers `others` must be other objects than the call's own, and not overlap them; they may have no
        #: position.
        self.left, self.positions, self.others = left, positions, others
        self.ids = frozenset(map(id, pinned))
        self.disjoint = Overlap([value for value in pinned if issubclass(type(value), torch.Tensor)]).disjoint
        self._table, self._keep = table, keep
        self.address = table.buffer_info()[0]

    def now(self, function: object, passed: tuple, own: tuple = ()) -> list[Any] | None:
        """The values in this call; None where a guard does not hold. `passed`: see `per_call_check`. `own`: ids of the
        call's own objects."""
        found: tuple | None = () if self.left is None else self.left(function, passed, {})
        if found is None or (
            self.others and not self._are_other_objects([found[each] for each in self.others], passed, own)
        ):
            return None
        values = self.values.copy()
        for position, value in zip(self.positions, found):
            if position is not None:
                values[position] = value
        for position, reference in self.held_weakly:
            value = values[position] = reference()
            if value is None:
                return None
        return values

    @staticmethod
    def _are_other_objects(values: Sequence[Any], passed: tuple, own: tuple) -> bool:
        if own and not set(own).isdisjoint(map(id, values)):
            return False
        if not passed:
            return True
        disjoint = Overlap([value for value in values if issubclass(type(value), torch.Tensor)]).disjoint
        return all(disjoint(*place) for place in passed)


class StaticGuards:
    """`guards` on static sources. `reads[k]` is read into `values[positions[k]]` of a list of `size`.

    `weights`: those of `reads` that a state's `generation` speaks of; all of them by default.
    `others`: static sources that the call's own objects must be different from, and not overlap in memory.
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
        self._weights = frozenset(map(id, reads if weights is None else weights))
        self._guards, self._reads, self._others = tuple(guards), tuple(reads), tuple(others)
        self._positions, self._size = tuple(positions), size
        self._checks = 0
        self._compiled: Check | None = None
        self._attempts = 0
        self._pause = 0
        self._next_pause = FIRST_PAUSE
        self.state: StaticState | None = None
        #: What changed between calls: how often, by id, and of what no snapshot is taken for that.
        self._snapshots: VersionSnapshots | None = None
        self._changes: Counter[int] = Counter()
        self._avoid: set[int] = {id(sys.modules)}  # every import anywhere changes it, those of the first call first
        #: Who holds weights, or what was made of them, as long as a state stays.
        self.holders: list[weakref.ref[Any]] = []
        self._times_forgotten = 0

    def forget(self) -> None:
        """Something that the state relies on is gone. Runs wherever the program lets go of it, so it takes no lock."""
        self.state = None
        self._times_forgotten += 1
        for each in self.holders:
            holder = each()
            if holder is not None:
                holder.forget_weights()

    def _check(self, function: Callable) -> tuple | None:
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

    def refresh(self, function: Callable) -> StaticState | None:
        """Check every static guard, one by one; the new state, None when one does not hold."""
        if not supported() or self._pause:
            found = self._check(function)
            self._pause = max(self._pause - 1, 0)
            return None if found is None else self._for_one_call(found)
        # A snapshot is made of values for which the guards hold: it relies on their kinds.
        if self._check(function) is None:
            return None
        if self._snapshots is not None:
            self._learn(self._snapshots)
        self._attempts += 1
        if self._attempts >= ATTEMPTS:
            self._pause = self._next_pause
            self._next_pause = min(self._next_pause * 2, LONGEST_PAUSE)
        state, found = self._taken(function)
        if found is None:
            return None
        if state is None:
            return self._for_one_call(found)
        self.state = state
        if not state.stands:  # another thread let go of something before the state was there to be forgotten
            self.state = None
        return state

    def _learn(self, snapshots: VersionSnapshots) -> None:
        """Finds out what changed, so that what changes again and again is in no snapshot."""
        self._snapshots = None
        self._changes.update(snapshots.differing())
        self._avoid |= {each for each, count in self._changes.items() if each and count >= FAILURES}

    def _for_one_call(self, found: tuple) -> StaticState:
        # For one call, whose own objects were there when the others were found: nothing need be kept alive for it,
        # least of all gradients that the program is about to replace.
        values: list[Any] = [None] * self._size
        for position, value in zip(self._positions, found):
            values[position] = value
        return StaticState(values, _DIFFERS, self, found[len(self._reads) :])

    def _taken(self, function: Callable) -> tuple[StaticState | None, tuple | None]:
        """A state that the next calls compare with, None where there can be none; and what `_check` found."""
        snapshots = VersionSnapshots(function, self._avoid)
        for guard in self._guards:
            snapshots.add_guard(guard)
        per_call = [source for source in self._reads if not snapshots.add_read(source)]
        outside = [source for source in self._others if not snapshots.add_read(source)]
        known = set(map(id, per_call))
        not_read = [source for source in outside if id(source) not in known]
        try:
            left = None
            if snapshots.left or per_call or not_read:
                from lampwork.runtime.guards.per_call import per_call_check

                left = per_call_check(self._guards, (*per_call, *not_read), snapshots)
        except LookupError:
            return None, self._check(function)
        table = snapshots.table()
        # The guards are checked after the words were written down, and the words compared after that: what another
        # thread does in between cannot pass for what was checked.
        found = self._check(function)
        if found is None or compare()(table.buffer_info()[0]):
            return None, found
        self._snapshots = snapshots
        relied_on = snapshots.let_go()
        stays = {id(source) for source in self._reads}.difference(map(id, per_call))
        places = {id(source): position for source, position in zip(self._reads, self._positions)}
        values: list[Any] = [None] * self._size
        held_weakly: list[tuple[int, weakref.ref]] = []
        for source, position, value in zip(self._reads, self._positions, found):
            if id(source) in stays:
                if has_own_life(value):
                    held_weakly.append((position, weakref.ref(value)))
                else:
                    values[position] = value
        fleeting = set(map(id, outside))
        others = zip(self._others, found[len(self._reads) :])
        pinned = [value for source, value in others if id(source) not in fleeting]
        generation = snapshots if self._weights.isdisjoint(map(id, per_call)) else None
        relied_on += pinned
        stands = [True]
        keep: object = relied_on
        if self._times_forgotten <= MOST_FORGOTTEN:
            guards = weakref.ref(self)

            def gone(_: object) -> None:
                stands.clear()
                forgotten = guards()
                if forgotten is not None:
                    forgotten.forget()

            keep = kept(relied_on, gone)
        if left is None:
            return StaticState(values, table, keep, pinned, generation, stands=stands, held_weakly=held_weakly), found
        positions = [places.get(id(source)) for source in left.reads]
        compared = fleeting - left.disjoint  # the others were found to overlap nothing that is passed
        with_own = [number for number, source in enumerate(left.reads) if id(source) in compared]
        return StaticState(
            values, table, keep, pinned, generation, left.call, positions, with_own, held_weakly, stands
        ), found


class Split:
    """An entry's guards, divided into those on the call and those on static things.

    `call`: guards to check on every call. `static`: see `StaticGuards`. `different`, `disjoint`: call sources that must
    differ from, and not overlap in memory with, every source of `others`.
    """

    def __init__(self, guards: Sequence[Guard]) -> None:
        self.call: list[Guard] = []
        self.static: list[Guard] = []
        self.others: list[Source] = []
        self.different: list[Source] = []
        self.disjoint: list[Source] = []
        self._known: dict[int, bool] = {}
        for guard in guards:
            give_way()
            rule_of(guard.test).place(self, guard, guard.test)
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
            base = source.parent()
            known = not source.from_call and (base is None or self.is_static(base))
            known = self._known[id(source)] = known and all(map(self.is_static, source.keys()))
        return known

    def pin(self, sources: Sequence[Source]) -> None:
        """The call's own objects must differ from those at `sources`, which are static."""
        known = {id(source) for source in self.others}
        self.others.extend(source for source in sources if id(source) not in known)
