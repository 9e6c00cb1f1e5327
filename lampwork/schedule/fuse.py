"""Fusion: which operators share a kernel, and why others do not.

Operators are taken in program order. Each joins the group it shares most memory traffic with, if the two fit together:

    pointwise + pointwise     the same iteration space (after splitting and merging axes)
    pointwise + reduction     what is reduced, or follows, row by row: softmax, layer norm, group norm
    reduction + reduction     the same rows: mean and sum of squares, max and argmax
Otherwise it starts a group of its own. Every refusal between a producer and its consumer is recorded with its reason.

Non-goals: fusing across ATen calls (segments), scatters (their stores keep their order), rows too few for the threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import Buffer, Load, nodes
from lampwork.ir.record import record
from lampwork.ir.size import Size, product
from lampwork.ir.target import Target
from lampwork.schedule.expressions import affine_strides, estimate, flat_offset, height
from lampwork.schedule.group import FusionGroup, Member, group_of
from lampwork.schedule.inline import DEEPEST, Operator, stores_every_element
from lampwork.schedule.tiles import kernels_of, leaves_idle
from lampwork.schedule.unify import Unifier
from lampwork.turns import give_way

#: More parameters than this spill pointers and streams: hardware prefetchers follow about 16 to 32 streams.
MOST_BUFFERS = 24
#: Fewer rows than this leave threads idle; it matters from LARGE_ELEMENTS on.
FEW_ROWS = 16
LARGE_ELEMENTS = 1 << 16
#: On a GPU: what reductions fold that are not worth keeping other work in few programs for, as a share of that.
LITTLE_FOLDED = 64


@record
class Refusal:
    """Why two operators cannot share a kernel. `id` names a page of docs/diagnostics."""

    id: str
    reason: str


@record
class Refused:
    """Two operators (by position) that do not share a kernel although they share `bytes` of memory traffic."""

    producer: int
    consumer: int
    refusal: Refusal
    bytes: int


def fuse(
    operators: Sequence[Operator],
    buffers: Mapping[str, Buffer],
    live_out: frozenset[str],
    mutable: frozenset[str],
    target: Target,
) -> tuple[list[FusionGroup], list[Refused]]:
    """Groups in a valid order, and the fusions refused."""
    return _Fusion(operators, buffers, mutable, target).run()


class _Fusion:
    def __init__(
        self, operators: Sequence[Operator], buffers: Mapping[str, Buffer], mutable: frozenset[str], target: Target
    ) -> None:
        self.operators, self.buffers, self.mutable, self.target = operators, buffers, mutable, target
        self.groups: list[FusionGroup] = []
        self.place: dict[int, int] = {}  # operator number -> group number
        self.ancestors: list[int] = []  # per group, a bit mask of groups it must follow
        self.reasons: dict[tuple[int, int], Refusal] = {}
        self.loaders: dict[str, list[int]] = {}
        self.writers: dict[str, list[int]] = {}
        self.own_height = 0
        self.depths: dict[str, int] = {}  # operations one after the other up to a buffer's value, in its kernel

    def run(self) -> tuple[list[FusionGroup], list[Refused]]:
        for number, operator in enumerate(self.operators):
            self._place(number, operator)
            for name in {load.buffer for load in operator.loads}:
                self.loaders.setdefault(name, []).append(number)
            self.writers.setdefault(operator.store.buffer, []).append(number)
        return self._ordered(), self._refused()

    # -- Placing one operator -----------------------------------------------------------------------------------------

    def _place(self, number: int, operator: Operator) -> None:
        give_way()
        loads = {load.buffer for load in operator.loads}
        before = {writer for name in loads for writer in self.writers.get(name, ())}
        name = operator.store.buffer
        self.own_height = height(nodes([operator.value]))
        if name in self.mutable:
            before.update(self.writers.get(name, ()))
            before.update(self.loaders.get(name, ()))
        required = {self.place[earlier] for earlier in before}
        for candidate in self._candidates(loads, required):
            group = self.groups[candidate]
            depth = self._depth(group, loads)
            reason = self._reason_against(candidate, group, operator, required, depth)
            if reason is None:
                self.depths[name] = depth
                self.place[number] = candidate
                self._require(candidate, required - {candidate})
                return
            for member in group.members:
                if member.buffer in loads:
                    self.reasons[self._number(member.operator), number] = reason
        self.depths[name] = self.own_height
        self.place[number] = len(self.groups)
        self.groups.append(group_of(operator))
        self.ancestors.append(0)
        self._require(len(self.groups) - 1, required)

    def _depth(self, group: FusionGroup, loads: set[str]) -> int:
        """How many operations follow one another up to the value of the operator being placed, were it in the group."""
        before = [self.depths[each.buffer] for each in group.members if each.buffer in loads]
        return self.own_height + max(before, default=0)

    def _number(self, operator: Operator) -> int:
        if not hasattr(self, "_numbers"):
            self._numbers = {id(op): number for number, op in enumerate(self.operators)}
        return self._numbers[id(operator)]

    def _candidates(self, loads: set[str], required: set[int]) -> list[int]:
        """Groups that make or read what the operator reads, most bytes first."""
        shared: dict[int, int] = {}
        for name in loads:
            size = self._bytes(name)
            users = {self.place[n] for n in (*self.writers.get(name, ()), *self.loaders.get(name, ()))}
            for group in users:
                shared[group] = shared.get(group, 0) + size
        return sorted(shared, key=lambda group: (group not in required, -shared[group], -group))

    def _bytes(self, name: str) -> int:
        buffer = self.buffers[name]
        return estimate(product(buffer.shape)) * ITEM_SIZE_BYTES.get(buffer.dtype, 8)

    def _require(self, group: int, required: set[int]) -> None:
        """Record that `group` follows `required`, and so does everything after it."""
        mask = 0
        for earlier in required:
            mask |= self.ancestors[earlier] | (1 << earlier)
        if not mask:
            return
        self.ancestors[group] |= mask
        bit = 1 << group
        for other, known in enumerate(self.ancestors):
            if known & bit:
                self.ancestors[other] = known | mask

    def _reason_against(
        self, number: int, group: FusionGroup, operator: Operator, required: set[int], depth: int
    ) -> Refusal | None:
        """Why the operator cannot join; None: it has joined."""
        bit = 1 << number
        if any(self.ancestors[other] & bit for other in required if other != number):
            return Refusal("fusion-between", "another kernel must run between them")
        attempt = Attempt(group, operator, depth, self.buffers, self.target)
        for rule in RULES:
            refusal = rule(attempt)
            if refusal is not None:
                return refusal
        return _Joining(group, operator, self.buffers, self.mutable, self.target).join()

    # -- Results ------------------------------------------------------------------------------------------------------

    def _ordered(self) -> list[FusionGroup]:
        """Groups so that each follows those it requires."""
        done, order = 0, []
        waiting = list(range(len(self.groups)))
        while waiting:
            ready = next(group for group in waiting if not self.ancestors[group] & ~done & ~(1 << group))
            waiting.remove(ready)
            done |= 1 << ready
            order.append(self.groups[ready])
        return order

    def _refused(self) -> list[Refused]:
        refused = []
        for (producer, consumer), reason in self.reasons.items():
            if self.place[producer] != self.place[consumer]:
                made, used = self.operators[producer], self.operators[consumer]
                refused.append(Refused(made.position, used.position, reason, 2 * self._bytes(made.store.buffer)))
        return refused


# Rules ---------------------------------------------------------------------------------------------------------------


@record
class Attempt:
    """An operator that might join a group. `depth`: how many operations would follow one another up to its value."""

    group: FusionGroup
    operator: Operator
    depth: int
    buffers: Mapping[str, Buffer]
    target: Target


def _scatters_keep_their_order(attempt: Attempt) -> Refusal | None:
    for each in (attempt.operator, *(member.operator for member in attempt.group.members)):
        if each.store.indirect or each.store.mode != "write":
            return Refusal("fusion-scatter", "a scatter keeps its own kernel: its stores happen in order")
    return None


def _few_buffers(attempt: Attempt) -> Refusal | None:
    operator = attempt.operator
    names = {operator.store.buffer, *(load.buffer for load in operator.loads)}
    for member in attempt.group.members:
        names.add(member.buffer)
        names.update(load.buffer for load in member.operator.loads)
    if len(names) > MOST_BUFFERS:
        return Refusal("fusion-buffers", f"together they use {len(names)} buffers, more than {MOST_BUFFERS}")
    return None


def _short_chains(attempt: Attempt) -> Refusal | None:
    if attempt.depth > 2 * DEEPEST:
        return Refusal("fusion-chain", f"more than {2 * DEEPEST} operations follow one another")
    return None


#: What keeps an operator out of a group, in the order in which it is asked. Whether their loops fit together is asked
#: last, by `_Joining`.
RULES: tuple[Callable[[Attempt], Refusal | None], ...] = (_scatters_keep_their_order, _few_buffers, _short_chains)


class _Joining:
    """One attempt to add an operator to a group. The group changes only if it succeeds."""

    def __init__(
        self,
        group: FusionGroup,
        operator: Operator,
        buffers: Mapping[str, Buffer],
        mutable: frozenset[str],
        target: Target,
    ) -> None:
        self.group, self.operator, self.buffers, self.mutable = group, operator, buffers, mutable
        self.target = target
        self.joining = group_of(operator)
        self.member = self.joining.members[0]
        self._rename_atoms()
        self.unifier = Unifier(group.extents, self.joining.extents, self.next_atom)

    def _rename_atoms(self) -> None:
        """The newcomer's atoms continue the group's numbering."""
        start = self.group.next_atom
        names = {atom: f"g{start + place}" for place, atom in enumerate(self.joining.extents)}
        extents = {names[atom]: extent for atom, extent in self.joining.extents.items()}
        renamed = FusionGroup(extents, self.joining.members)
        self.member.refine(
            {old: renamed.symbol(new) for old, new in names.items()}, {old: (new,) for old, new in names.items()}
        )
        self.joining = renamed
        self.next_atom = start + len(names)

    def join(self) -> Refusal | None:
        reason = self._unify() or self._fit() or self._conflicts()
        if reason is None:
            self._commit()
        return reason

    # -- Common axes --------------------------------------------------------------------------------------------------

    def _unify(self) -> Refusal | None:
        produced = False
        for load in self.operator.loads:
            source = self.group.producer(load.buffer)
            if source is None:
                continue
            if source.operator.partial or not stores_every_element(source.operator):
                return Refusal("fusion-partial", "the producer stores only part of the buffer")
            if load.indirect:
                return Refusal("fusion-gather", "the consumer gathers from the producer's result")
            produced = True
            for made, read in zip(source.operator.store.index, load.index):
                left = source.index((made,))[0]
                right = self.member.index((read,))[0]
                if not self.unifier.equate(left, right):
                    return Refusal(
                        "fusion-order",
                        "the consumer reads the result in another order, or elements of other iterations",
                    )
        if not produced and not self._unify_siblings():
            return Refusal("fusion-space", "they share an input but not an iteration space")
        return None

    def _unify_siblings(self) -> bool:
        """Operators that read the same elements of a buffer in the same order."""
        own: dict[str, Load] = {}
        for load in self.operator.loads:
            if not load.indirect:
                own.setdefault(load.buffer, load)
        for member in self.group.members:
            for load in member.operator.loads:
                other = own.get(load.buffer)
                if other is None or load.indirect or not self.member.atoms:
                    continue
                trial = Unifier(self.group.extents, self.joining.extents, self.next_atom)
                pairs = zip(member.index(load.index), self.member.index(other.index))
                if not all(trial.equate(left, right) for left, right in pairs):
                    continue
                if self._covers(trial, member) or self._equate_results(trial, member) and self._covers(trial, member):
                    self.unifier = trial
                    return True
        return False

    def _equate_results(self, trial: Unifier, member: Member) -> bool:
        """Two products of one factor with others of the same shape: their results have the same iteration space."""
        both = (self.operator, member.operator)
        if not kernels_of(self.target).merges_products or not all(
            each.reduction and stores_every_element(each) for each in both
        ):
            return False
        mine, theirs = (each.store.index for each in both)
        if len(mine) != len(theirs):
            return False
        return all(trial.equate(*pair) for pair in zip(member.index(theirs), self.member.index(mine)))

    def _covers(self, trial: Unifier, member: Member) -> bool:
        """Whether both sides run over the same atoms: else they share a row of the input, not the work."""
        mine = {part for atom in self.member.atoms for part in trial.final_parts(atom)}
        theirs = {part for atom in member.atoms for part in trial.final_parts(atom)}
        return mine == theirs

    # -- Shape of the kernel ------------------------------------------------------------------------------------------

    def _atoms(self, atoms: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(part for atom in atoms for part in self.unifier.final_parts(atom))

    def _fit(self) -> Refusal | None:
        """Outer atoms of the joined group, or why there are none."""
        group, operator = self.group, self.operator
        kept, reduced = self._atoms(self.member.kept), self._atoms(self.member.reduced)
        members = [set(self._atoms(member.atoms)) for member in group.members]
        outer = self._atoms(group.outer_atoms)
        new_outer: tuple[str, ...] | None = outer if group.outer is not None else None
        if group.outer is not None:
            if operator.reduction and set(kept) != set(outer):
                return Refusal("fusion-reductions", "they reduce over different axes")
            if not set(kept) >= set(outer):
                return Refusal("fusion-rows", "the consumer does not run over the producer's rows")
        elif operator.reduction:
            new_outer = kept
            if any(not atoms >= set(kept) for atoms in members):
                return Refusal("fusion-rows", "the producer does not run over all rows of the reduction")
        elif set(kept) != set(outer):
            if kept[: len(outer)] != outer:
                return Refusal("fusion-space", "they run over different iteration spaces")
            new_outer = outer
        if new_outer is not None:
            reason = self._too_few_rows(new_outer, [*members, set(kept) | set(reduced)])
            if reason:
                return reason
        self.new_outer = new_outer
        return None

    def _too_few_rows(self, outer: tuple[str, ...], members: list[set[str]]) -> Refusal | None:
        extents = self.unifier.extents
        rows = estimate(product(extents[atom] for atom in outer))
        largest = max(estimate(product(extents[atom] for atom in atoms)) for atoms in members)
        if kernels_of(self.target).independent_threads:
            row = largest // max(rows, 1)
            few = leaves_idle(rows, row, False, self.target)
            # Channels lie side by side: where sums are all but finished, nothing is gained by doing the rest with them.
            few = few or (self._folds_little(largest) and leaves_idle(rows, row, True, self.target))
        else:
            few = rows < FEW_ROWS and largest > LARGE_ELEMENTS
        if few:
            return Refusal("fusion-few-rows", f"only {rows} rows for {largest} elements: apart, all threads can work")
        return None

    def _folds_little(self, largest: int) -> bool:
        """Whether the reductions are over next to nothing, compared with a member of `largest` elements."""
        folded = [member for member in (*self.group.members, self.member) if member.operator.reduction]
        sizes = [
            estimate(product(self.unifier.extents[atom] for atom in self._atoms(member.atoms))) for member in folded
        ]
        return bool(sizes) and max(sizes) * LITTLE_FOLDED <= largest

    def _conflicts(self) -> Refusal | None:
        """Memory order of the stores, and buffers that are overwritten."""
        name = self.operator.store.buffer
        for member in self.group.members:
            if member.buffer == name:
                return Refusal("fusion-overwrite", "both store into one buffer")
        mine = self._store_strides(self.member)
        for member in self.group.members:
            if _other_order(mine, self._store_strides(member), self.unifier.extents):
                return Refusal("fusion-layout", "their results are laid out in different orders")
        if kernels_of(self.target).keeps_layout and self.new_outer is not None and self._stores_across():
            return Refusal("fusion-layout", "what one reads along rows of memory, the other stores across them")
        if self.new_outer is not None and self._read_by_others():
            return Refusal("fusion-overwrite", "one overwrites what another loop of the kernel may read again")
        for writer, readers in self._overwritten(name):
            place = self._offset(writer, writer.operator.store.index, writer.buffer)
            for reader in readers:
                for load in reader.operator.loads:
                    if load.buffer == writer.buffer and (
                        load.indirect or self._offset(reader, load.index, load.buffer) != place
                    ):
                        return Refusal("fusion-overwrite", "one overwrites elements that another iteration reads")
        return None

    def _stores_across(self) -> bool:
        """Whether a member that has no use for what is reduced stores across the rows that reductions read, or along
        them where these read across: one of the two would be scattered. Apart, the store is made from square tiles."""
        derived: set[str] = set()
        stored: set[bool] = set()
        read: set[bool] = set()
        for member in (*self.group.members, self.member):
            operator, atoms = member.operator, self._atoms(member.atoms)
            if operator.reduction or any(load.buffer in derived for load in operator.loads):
                derived.add(member.buffer)
            elif estimate(product(self.unifier.extents[atom] for atom in atoms)) >= LARGE_ELEMENTS:
                stored |= self._sides(self._store_strides(member))
            if operator.reduction:
                for load in operator.loads:
                    offset = self._offset(member, load.index, load.buffer)
                    strides = affine_strides(offset, self.unifier.extents)[0]
                    if not load.indirect and strides.keys() >= set(atoms):
                        read |= self._sides(strides)
        return len(read) == 1 and not stored <= read

    def _sides(self, strides: dict[str, Size]) -> set[bool]:
        """Whether an access is contiguous along what is outside (nothing where it is along too little)."""
        assert self.new_outer is not None
        extents = self.unifier.extents
        return {atom in self.new_outer for atom, by in strides.items() if by == 1 and estimate(extents[atom]) > 4}

    def _overwritten(self, name: str):
        everyone = [*self.group.members, self.member]
        if name in self.mutable:
            yield self.member, everyone
        reads = {load.buffer for load in self.operator.loads}
        for member in self.group.members:
            if member.buffer in self.mutable and member.buffer in reads:
                yield member, [self.member]

    def _read_by_others(self) -> bool:
        """Whether a member overwrites a buffer that another one loads: values may be recomputed in later loops."""
        everyone = [*self.group.members, self.member]
        return any(
            load.buffer == writer.buffer
            for writer in everyone
            if writer.buffer in self.mutable
            for reader in everyone
            if reader is not writer
            for load in reader.operator.loads
        )

    def _offset(self, member: Member, index: tuple[Size, ...], buffer: str) -> Size:
        return self.unifier.resolve(flat_offset(member.index(index), self.buffers[buffer].strides))

    def _store_strides(self, member: Member) -> dict[str, Size]:
        offset = self._offset(member, member.operator.store.index, member.buffer)
        return affine_strides(offset, self.unifier.extents)[0]

    def _commit(self) -> None:
        unifier, group = self.unifier, self.group
        parts = {atom: unifier.final_parts(atom) for atom in unifier.parts}
        if parts:
            for member in (*group.members, self.member):
                member.refine(unifier.values, parts)
        group.members.append(self.member)
        used = {atom for member in group.members for atom in member.atoms}
        group.extents = {atom: unifier.resolve(extent) for atom, extent in unifier.extents.items() if atom in used}
        group.next_atom = unifier.next_atom
        group.outer = self.new_outer


def _other_order(mine: dict[str, Size], theirs: dict[str, Size], extents: Mapping[str, Size]) -> bool:
    """Whether two stores over the same atoms are contiguous along different ones, both worth a vector."""

    def innermost(strides: dict[str, Size]) -> str | None:
        found = [atom for atom, stride in strides.items() if stride == 1 and estimate(extents[atom]) > 4]
        return found[0] if found else None

    one, other = innermost(mine), innermost(theirs)
    return one is not None and other is not None and one != other and one in theirs and other in mine
