"""`FusionGroup`: operators that share one kernel, over one set of common axes.

A group's axes are atoms: each member's axis is an expression of them (`values`), such as `32 * g0 + g1` where another
member runs over the two parts. `outer` atoms are common to all members; what remains of a member's domain is its
inner space, looped over inside. A group without reductions has all its atoms outside.
"""

from __future__ import annotations

from dataclasses import field

from lampwork.ir.loops import Load
from lampwork.ir.record import record
from lampwork.ir.size import Size, Symbol, bounds
from lampwork.schedule.expressions import flat_offset, substitute_sizes
from lampwork.schedule.inline import Operator


@record(frozen=False, eq=False)
class Member:
    """One operator of a group; `values` maps its axes to expressions of the group's atoms.

    `kept` and `reduced` are the atoms of the operator's own axes and of its reduction axes, in loop order.
    """

    operator: Operator
    values: dict[str, Size]
    kept: tuple[str, ...]
    reduced: tuple[str, ...] = ()
    _offsets: dict[int, Size] = field(default_factory=dict)

    @property
    def buffer(self) -> str:
        return self.operator.store.buffer

    @property
    def atoms(self) -> tuple[str, ...]:
        return self.kept + self.reduced

    def index(self, index: tuple[Size, ...]) -> tuple[Size, ...]:
        """An index over the operator's axes as one over the group's atoms."""
        return tuple([substitute_sizes(part, self.values) for part in index])

    def offset(self, load: Load, strides: tuple[Size, ...]) -> Size:
        """Flat offset of `load` over the group's atoms."""
        found = self._offsets.get(id(load))
        if found is None:
            found = self._offsets[id(load)] = flat_offset(self.index(load.index), strides)
        return found

    def refine(self, values: dict[str, Size], parts: dict[str, tuple[str, ...]]) -> None:
        """Replace atoms by expressions of finer ones."""
        self.values = {name: substitute_sizes(value, values) for name, value in self.values.items()}
        self.kept = tuple(part for atom in self.kept for part in parts.get(atom, (atom,)))
        self.reduced = tuple(part for atom in self.reduced for part in parts.get(atom, (atom,)))
        self._offsets.clear()


@record(frozen=False, eq=False)
class FusionGroup:
    extents: dict[str, Size] = field(default_factory=dict)
    members: list[Member] = field(default_factory=list)
    #: Atoms outside the inner loops; None while the group has no reduction: then all are.
    outer: tuple[str, ...] | None = None
    next_atom: int = 0

    def new_atom(self, extent: Size) -> str:
        name = f"g{self.next_atom}"
        self.next_atom += 1
        self.extents[name] = extent
        return name

    def symbol(self, atom: str) -> Symbol:
        return loop_symbol(atom, self.extents[atom])

    @property
    def outer_atoms(self) -> tuple[str, ...]:
        if self.outer is not None:
            return self.outer
        return self.members[0].kept

    def inner_atoms(self, member: Member) -> tuple[str, ...]:
        outer = self.outer_atoms
        return tuple(atom for atom in member.atoms if atom not in outer)

    def producer(self, buffer: str) -> Member | None:
        for member in self.members:
            if member.buffer == buffer:
                return member
        return None


def loop_symbol(name: str, extent: Size) -> Symbol:
    """The index of a loop over [0, extent)."""
    return Symbol(name, 0, max(bounds(extent)[1] - 1, 0))


def group_of(operator: Operator) -> FusionGroup:
    """The group of one operator: its axes are the atoms. Axes of extent 1 need none."""
    group = FusionGroup()
    values: dict[str, Size] = {}
    kept: list[str] = []
    reduced: list[str] = []
    for atoms, axes in ((kept, operator.axes), (reduced, operator.reduction.axes if operator.reduction else ())):
        for axis in axes:
            if axis.extent == 1:
                values[axis.name] = 0
                continue
            atom = group.new_atom(substitute_sizes(axis.extent, values))
            atoms.append(atom)
            values[axis.name] = group.symbol(atom)
    group.members.append(Member(operator, values, tuple(kept), tuple(reduced)))
    if operator.reduction:
        group.outer = tuple(kept)
    return group
