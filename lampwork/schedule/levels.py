"""Which nests may share kernels, and when ATen calls run: the items of a program cut into segments.

    addmm -> gelu nest -> addmm -> add nest, layer-norm nests -> addmm
    segment 0: ()   externs 0: addmm   segment 1: gelu   externs 1: addmm   segment 2: add, layer norm   externs 2:
    addmm

Nests of one level (the number of ATen calls they wait for) form a segment: no ATen call has to run between them.

A call that may wait does so where what is computed for it is read in a later segment, too:

    a = sin(tanh(x));  w_grad = mm(a, g)       as early as it can: tanh(x) is stored for the kernel of d
    a_grad = mm(g, w)                          after the kernel of d, w_grad follows one kernel that makes a and d
    d = a_grad * cos(tanh(x)) * ...
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import Buffer, LoopNest
from lampwork.ir.program import Extern, Item
from lampwork.ir.size import product
from lampwork.schedule.dependences import Dependences
from lampwork.schedule.expressions import estimate


def find_levels(
    items: Sequence[Item],
    dependences: Dependences,
    buffers: Mapping[str, Buffer],
    rematerialised: frozenset[str] = frozenset(),
    returned: frozenset[str] = frozenset(),
) -> list[int]:
    """For each nest the number of its segment; for each ATen call the segment it follows: -1, ahead of all, for calls
    that read no memory.

    Nests come as early as they can, but one that makes more than it reads (an expanded mask, a cast weight) waits for
    its first consumer: nothing lives longer than it needs to. So does what is computed from inputs alone (values that a
    backward pass rematerialises), unless it reads what nobody else would need any more by then. And so does what makes
    one of the buffers `rematerialised`, as in `Lowered`, calls too: it need not be kept until then. Other calls wait
    where that saves more memory than it keeps: see above. `returned`: buffers that are stored in any case.
    """
    return _Levels(items, dependences, buffers, rematerialised, returned).find()


class _Levels:
    def __init__(
        self,
        items: Sequence[Item],
        dependences: Dependences,
        buffers: Mapping[str, Buffer],
        rematerialised: frozenset[str],
        returned: frozenset[str],
    ) -> None:
        self.items, self.dependences, self.buffers, self.returned = items, dependences, buffers, returned
        self.is_nest = [isinstance(item, LoopNest) for item in items]
        self.repeated = [not rematerialised.isdisjoint(written) for written in dependences.writes]
        self.after: list[list[int]] = [[] for _ in items]
        self.levels: list[int] = []
        self.readers: dict[str, list[int]] = {}  # the nests that read a buffer
        for number, nest in enumerate(self.is_nest):
            for name in dependences.reads[number] if nest else ():
                self.readers.setdefault(name, []).append(number)

    def find(self) -> list[int]:
        self._come_early()
        latest, found = self._latest(), self._waiting()
        for number in range(len(self.items) - 1, -1, -1):
            if not isinstance(self.items[number], Extern) or self.repeated[number] or latest[number] <= found[number]:
                continue
            level, moving = self._later_level(number, latest[number], found)
            # What else waits for these is found at the end: each time would take as long as the program is, squared.
            for each in (*moving, *self._delay(number, level)) if moving else ():
                found[each] = max(found[each], level, self.levels[each])
        return self._waiting()

    def _come_early(self) -> None:
        levels, before = self.levels, self.dependences.before
        for number, nest in enumerate(self.is_nest):
            level = 0 if nest or self.dependences.reads[number] else -1
            for earlier in before[number]:
                self.after[earlier].append(number)
                level = max(level, levels[earlier] + (nest and not self.is_nest[earlier]))
            levels.append(level)

    def _waiting(self) -> list[int]:
        """The levels where what waits for its first consumer has that one's."""
        levels, after = list(self.levels), self.after
        latest = list(levels)  # for what is computed from inputs alone, if all of it waited
        for number in range(len(levels) - 1, -1, -1):
            if levels[number] == 0 and self.is_nest[number] and after[number]:
                latest[number] = min([latest[later] for later in after[number]])
        for number in range(len(levels) - 1, -1, -1):
            nest, repeated = self.is_nest[number], self.repeated[number]
            if not after[number] or not (nest or repeated):
                continue
            # A call runs after the segment of its number.
            first = min([levels[later] - (not nest and self.is_nest[later]) for later in after[number]])
            if first <= levels[number]:
                continue
            if not repeated and not self._grows(number):
                first = min([first, *self._last_used(number, latest)]) if levels[number] == 0 else 0
            levels[number] = max(levels[number], first)
        return levels

    def _last_used(self, number: int, latest: Sequence[int]) -> Iterator[int]:
        """Until when other items need what an item reads, for all that they need."""
        for earlier in self.dependences.before[number]:
            others = [latest[later] for later in self.after[earlier] if later != number]
            if others:
                yield max(others)

    def _grows(self, number: int) -> bool:
        buffers, dependences = self.buffers, self.dependences
        read = [name for name in dependences.reads[number] if buffers[name].kind == "intermediate"]
        return self._bytes(dependences.writes[number]) >= self._bytes(read)

    def _bytes(self, names: Iterable[str]) -> int:
        return sum(_size_bytes(self.buffers[name]) for name in names)

    # -- Calls that wait ----------------------------------------------------------------------------------------------

    def _latest(self) -> list[int]:
        """The largest levels that make the program no longer."""
        most = max(self.levels, default=0)
        latest = [most] * len(self.items)
        for number in range(len(self.items) - 1, -1, -1):
            for later in self.after[number]:
                step = self.is_nest[later] and not self.is_nest[number]
                latest[number] = min(latest[number], latest[later] - step)
        return latest

    def _delay(self, number: int, level: int) -> list[int]:
        """Gives an item a larger level, and what follows it the levels that it needs then; all that have got one."""
        pending, changed = [(number, level)], []
        while pending:
            number, level = pending.pop()
            if level > self.levels[number]:
                self.levels[number] = level
                changed.append(number)
                nest = self.is_nest[number]
                pending += [(later, level + (self.is_nest[later] and not nest)) for later in self.after[number]]
        return changed

    def _later_level(self, number: int, latest: int, levels: Sequence[int]) -> tuple[int, set[int]]:
        """The level of a call that may wait until `latest`: a larger one than it has if nests in front of it share what
        they read or compute with nests there, and that is more than what stays in memory meanwhile. Behind it, what
        gets that level with it: nothing where it does not wait.

        `levels`: those that all have if it does not wait."""
        own = self.levels[number]
        chain = self._nests_before(number)
        found = {levels[partner] for each in chain for _, partner in self._partners(each, chain)}
        level = min((each for each in found if own < each <= latest), default=own)
        if level == own:
            return own, set()
        moving: set[int] = {number}
        shared: set[str] = set()
        for each in sorted(chain, reverse=True):
            if not all(later in moving or levels[later] >= level for later in self.after[each]):
                continue
            if self.levels[each] > 0 and not self.repeated[each] and not self._grows(each):
                continue  # it does not wait
            moving.add(each)
            shared |= {name for name, partner in self._partners(each, chain) if levels[partner] == level}
        pays = shared and self._bytes(shared) >= self._kept(number, level, moving, levels)
        return (level, moving) if pays else (own, set())

    def _partners(self, number: int, chain: set[int]) -> Iterator[tuple[str, int]]:
        """Nests outside of `chain` that read what a nest of it makes or reads, and the buffer."""
        made = [name for name in self.dependences.writes[number] if name not in self.returned]
        for name in (*made, *self.dependences.reads[number]):
            for reader in self.readers.get(name, ()):
                if reader not in chain:
                    yield name, reader

    def _nests_before(self, number: int) -> set[int]:
        """The nests that compute what a call reads, up to other calls and the inputs."""
        found: set[int] = set()
        pending = [number]
        while pending:
            for earlier in self.dependences.before[pending.pop()]:
                if self.is_nest[earlier] and earlier not in found:
                    found.add(earlier)
                    pending.append(earlier)
        return found

    def _kept(self, number: int, level: int, moving: set[int], levels: Sequence[int]) -> int:
        """Bytes that are needed until `level` because the call waits for it."""
        made = {name for each in moving if each != number for name in self.dependences.writes[each]}
        kept = 0
        for earlier in self.dependences.before[number]:
            names = [name for name in self.dependences.writes[earlier] if name in self.dependences.reads[number]]
            if all(levels[later] < level or later == number for later in self.after[earlier]):
                kept += self._bytes([name for name in names if name not in made])
        return kept


def _size_bytes(buffer: Buffer) -> int:
    return estimate(product(buffer.shape)) * ITEM_SIZE_BYTES.get(buffer.dtype, 8)
