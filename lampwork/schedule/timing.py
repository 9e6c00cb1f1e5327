"""When each member of a group runs, and what memory its loops see.

A reduction's result is there one step after the loop that folds it; members of one time and one inner space share a
loop. Accesses and positions are over the group's atoms: they decide the loops (see `arrange`).
"""

from __future__ import annotations

from collections.abc import Mapping

from lampwork.ir.dtype import FLOATING, ITEM_SIZE_BYTES
from lampwork.ir.loops import OF_WINDOWS, Buffer, Index, nodes
from lampwork.ir.record import record
from lampwork.ir.size import Size, add, mul
from lampwork.schedule.expressions import flat_offset, substitute_sizes
from lampwork.schedule.group import FusionGroup, Member
from lampwork.schedule.loops import Access, make_access

#: The loops of one time over one inner space.
Phase = tuple[frozenset[str], int]
ROW: Phase = (frozenset(), 0)


@record(frozen=False, eq=False)
class Timed:
    """When a member runs: `time` of its loop, or of its row-level statements; `available` to other members from
    then."""

    order: int
    member: Member
    space: frozenset[str]
    time: int
    available: int
    keep: str = ""  # "memory", "scratch" or "recompute", for values with an inner space
    accumulator: str = ""
    scratch: str = ""


class Timing:
    """Members in order (`timed`); their memory accesses, and all other index expressions that loops must respect.

    `needed`: buffers that the kernel stores. Other buffers it makes are no memory.
    """

    def __init__(self, group: FusionGroup, buffers: Mapping[str, Buffer], needed: frozenset[str]) -> None:
        self.group, self.buffers, self.needed = group, buffers, needed
        self.timed: list[Timed] = []
        self.by_buffer: dict[str, Timed] = {}
        self.accesses: list[tuple[Timed, Access]] = []
        self.positions: list[tuple[Timed, Size]] = []
        self._order_members()
        self._find_accesses()

    def _order_members(self) -> None:
        """Give every member its time. (A buffer that is overwritten is read in the same statements or not at all: see
        fusion, which refuses everything else.)"""
        group = self.group
        for member in group.members:
            operator = member.operator
            space = frozenset(group.inner_atoms(member))
            time = 0
            for load in operator.loads:
                source = self.by_buffer.get(load.buffer)
                if source is None:
                    continue
                same_loop = space and source.space == space and not source.member.operator.reduction
                time = max(time, source.time if same_loop else source.available)
            later = bool(operator.reduction) or bool(space)
            timed = Timed(len(self.timed), member, space, time, time + 1 if later else time)
            self.timed.append(timed)
            self.by_buffer[member.buffer] = timed

    def _find_accesses(self) -> None:
        """Flat offsets of everything that touches memory, and all other index expressions that loops must respect."""
        for timed in self.timed:
            member, operator = timed.member, timed.member.operator
            for load in operator.loads:
                source = self.by_buffer.get(load.buffer)
                if source is not None and source.order < timed.order and load.buffer not in self.needed:
                    continue
                buffer = self.buffers[load.buffer]
                self._add_access(timed, member.offset(load, buffer.strides), buffer, False, bool(load.indirect))
            if member.buffer in self.needed:
                buffer = self.buffers[member.buffer]
                offset = flat_offset(member.index(operator.store.index), buffer.strides)
                self._add_access(timed, offset, buffer, True, bool(operator.store.indirect))
            for node in nodes([operator.value, *(value for _, value in operator.store.indirect)]):
                if type(node) is Index:
                    self.positions.append((timed, substitute_sizes(node.value, member.values)))
            if operator.reduction and operator.reduction.op.startswith("arg"):
                self.positions.append((timed, self.position(member)))

    def _add_access(self, timed: Timed, offset: Size, buffer: Buffer, store: bool, gathered: bool) -> None:
        atoms = timed.member.atoms if not store else timed.member.kept
        item_bytes = ITEM_SIZE_BYTES[buffer.dtype]
        access = make_access(offset, item_bytes, store, atoms, self.group.extents, gathered)
        self.accesses.append((timed, access))

    def position(self, member: Member) -> Size:
        """Row-major position over the reduction axes (argmax, argmin)."""
        reduction = member.operator.reduction
        assert reduction is not None
        position: Size = 0
        for axis in reduction.axes:
            # How long the last chunk of a split axis is depends on the chunk, another axis.
            extent = substitute_sizes(axis.extent, member.values)
            position = add(mul(position, extent), member.values[axis.name])
        return position

    def row_offset(self, space: frozenset[str]) -> Size:
        offset: Size = 0
        for atom in self.space_order(space):
            offset = add(mul(offset, self.group.extents[atom]), self.group.symbol(atom))
        return offset

    def window_order(self, space: frozenset[str]) -> list[str] | None:
        """The order in which the elements of a pooling window are folded, whatever their order in memory: the first of
        equal ones counts. None where no window is folded."""
        for timed in self.timed:
            reduction = timed.member.operator.reduction
            if timed.space == space and reduction is not None and reduction.op in OF_WINDOWS:
                return list(self.group.inner_atoms(timed.member))
        return None

    def space_order(self, space: frozenset[str]) -> list[str]:
        """One order of a space's atoms for all who run over it: that of the first member."""
        for timed in self.timed:
            if timed.space == space:
                return list(self.group.inner_atoms(timed.member))
        raise KeyError(space)


def sums_floats(member: Member) -> bool:
    """Whether the order of additions shows in the result."""
    reduction = member.operator.reduction
    return reduction is not None and reduction.op == "sum" and reduction.dtype in FLOATING
