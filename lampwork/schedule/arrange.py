"""The loops of one kernel: memory order, one vector axis, tiles for transposes, chunks for threads.

    row-wise softmax [4096, 768]     parallel i0 in 4096: vector i1 in 768 (three times)
    sum down columns [768, 4096]     parallel i0: vector i1 in 128 columns: serial i2 in 768
    transpose [512, 500]             parallel tiles of 16 x 16
    scatter of rows [2048, 768]      serial i0 in 2048: vector i1 in 768

Precondition: members with their times. Guarantee: every atom is an expression of loop indices, the same for all
members of one phase. Non-goal: the result never depends on the number of threads.
"""

from __future__ import annotations

from lampwork.ir.loops import LoopKind
from lampwork.ir.size import Size, Symbol, product, symbols
from lampwork.ir.target import Target
from lampwork.schedule import loops as planning
from lampwork.schedule.cascade import cascade
from lampwork.schedule.expressions import affine_strides, estimate, substitute_sizes
from lampwork.schedule.group import Member, loop_symbol
from lampwork.schedule.loops import LoopPlan, PlannedLoop
from lampwork.schedule.timing import Phase, Timed, Timing, sums_floats


def arrange(timing: Timing, target: Target) -> LoopPlan:
    """Loops for all members."""
    return _Arrangement(timing, target).plan()


class _Arrangement:
    def __init__(self, timing: Timing, target: Target) -> None:
        self.timing, self.target, self.group = timing, target, timing.group
        self.timed, self.accesses, self.positions = timing.timed, timing.accesses, timing.positions

    def plan(self) -> LoopPlan:
        group = self.group
        plan = LoopPlan()
        every = [access for _, access in self.accesses]
        outer = planning.order_atoms(group.outer_atoms, [a for a in every if a.store] if group.outer is None else every)
        spaces: dict[frozenset[str], list[planning.Access]] = {}
        for timed in self.timed:
            if timed.space:
                spaces.setdefault(timed.space, [])
        for timed, access in self.accesses:
            if timed.space:
                spaces[timed.space].append(access)
        in_order = False
        safe = all(_iterations_independent(timed.member) for timed in self.timed)
        column, column_cost = self._best(outer, every)
        rows: dict[frozenset[str], str | None] = {}
        if spaces:
            row_cost = 0.0
            for space, found in spaces.items():
                rows[space], cost = self._best(planning.order_atoms(self.timing.space_order(space), found), found)
                row_cost += cost + self._fold_cost(space)
            inside = [access for timed, access in self.accesses if timed.space]
            column_cost = self._cost(column, inside) if column is not None else 0.0
            rows_in_all = estimate(product(group.extents[atom] for atom in group.outer_atoms))
            in_order = any(_folds_in_order(timed.member, rows_in_all) for timed in self.timed)
            plan.column_mode = safe and column is not None and (in_order or column_cost < row_cost)
        vector_outer = column if safe and (plan.column_mode or not spaces) else None
        alone = _alone_in_a_scatter(self.timed, self.accesses)
        if alone is not None:  # rows are gone through in order, the elements of each side by side
            outer, vector_outer = [atom for atom in group.outer_atoms if atom != alone] + [alone], alone
        names = _names("i")
        self._plan_outer(plan, outer, vector_outer, every, safe, names)
        for space, found in spaces.items():
            vector = None if plan.column_mode or in_order or not safe else rows[space]
            for time in sorted({timed.time for timed in self.timed if timed.space == space}):
                self._plan_inner(plan, (space, time), vector, found, names)
        return plan

    def _fold_cost(self, space: frozenset[str]) -> float:
        """Adding up the lanes at the end of every row, in the unit of `vector_cost`."""
        rows = estimate(product(self.group.extents[atom] for atom in self.group.outer_atoms))
        folds = sum(timed.space == space and timed.member.operator.reduction is not None for timed in self.timed)
        return rows * folds * planning.FOLD_COST

    def _best(self, atoms, accesses) -> tuple[str | None, float]:
        """The cheapest vector axis; the innermost of equals."""
        costs = [(self._cost(atom, accesses), -place, atom) for place, atom in enumerate(atoms)]
        if not costs:
            return None, 0.0
        cost, _, atom = min(costs)
        return atom, cost

    def _cost(self, atom: str, accesses) -> float:
        lanes = max(self.target.vector_bytes // 4, 1)
        return planning.vector_cost(atom, accesses, estimate(self.group.extents[atom]), lanes)

    def _strides_over(self, phase: Phase | None) -> list[tuple[dict, frozenset]]:
        """Strides of every offset and position that the loops of `phase` see; None: the outer loops, which see all."""

        def seen(timed: Timed, store: bool) -> bool:
            if phase is None:
                return True
            if (timed.space, timed.time) == phase:
                return True
            # An earlier value, of this space or of a part of it, may be computed again here, but it is stored once.
            space, time = phase
            earlier = timed.space <= space and timed.time <= time
            return earlier and not store and not timed.member.operator.reduction

        extents = self.group.extents
        found = [(access.strides, access.irregular) for timed, access in self.accesses if seen(timed, access.store)]
        found += [affine_strides(value, extents) for timed, value in self.positions if seen(timed, False)]
        found += [affine_strides(extent, extents) for extent in extents.values() if not isinstance(extent, int)]
        if phase is not None:
            # Elements that an earlier loop stored, and positions in a scratch row (row-major over its space).
            rows = [timed for timed in self.timed if timed.space and timed.space <= phase[0]]
            found += [affine_strides(self.timing.row_offset(row), extents) for row in {timed.space for timed in rows}]
            read = {load.buffer for timed in rows if timed.time == phase[1] for load in timed.member.operator.loads}
            found += [
                (access.strides, access.irregular)
                for timed, access in self.accesses
                if access.store and timed.member.buffer in read
            ]
        return found

    def _plan_outer(self, plan: LoopPlan, outer, vector: str | None, every, safe: bool, names) -> None:
        extents = self.group.extents
        if vector is not None:
            outer = [atom for atom in outer if atom != vector] + [vector]
        runs = planning.merge_atoms(outer, extents, self._strides_over(None))
        work_ns = self._work_ns()
        planned: list[PlannedLoop] = []
        before = 1
        pointwise = not any(timed.space for timed in self.timed)
        across = self._transposed_run(runs, every) if vector is not None and pointwise else None
        if across is not None:
            plan.outer = self._plan_tiles(plan, runs, across, every, names)
            planning.parallelize(plan.outer[:-2], work_ns, safe)
            return
        for run, extent in runs[:-1] if vector is not None else runs:
            loop = PlannedLoop(next(names), extent)
            planned.append(loop)
            self._spread(plan.values, run, loop_symbol(loop.name, extent))
            before *= max(estimate(extent), 1)
        if vector is not None:
            run, extent = runs[-1]
            planned += self._plan_vector(plan, run, extent, before, work_ns, names)
        planning.parallelize([loop for loop in planned if loop.kind == "serial"], work_ns, safe)
        plan.outer = planned

    def _transposed_run(self, runs, every) -> int | None:
        """The loop along which some large load is contiguous, where the vector loop is not: the two are tiled."""
        vector, vector_extent = runs[-1]
        best: tuple[int, int] | None = None
        for access in every:
            if access.gathered or vector[-1] in access.irregular or access.strides.get(vector[-1], 0) in (0, 1):
                continue
            for place, (run, extent) in enumerate(runs[:-1]):
                if access.strides.get(run[-1], 0) == 1 and run[-1] not in access.irregular:
                    tile = self.target.vector_bytes // access.item_bytes
                    if min(estimate(extent), estimate(vector_extent)) >= tile // 2:
                        best = max(best or (0, 0), (access.elements * access.item_bytes, place))
        return None if best is None else best[1]

    def _plan_tiles(self, plan: LoopPlan, runs, across: int, every, names) -> list[PlannedLoop]:
        """Square tiles of one vector register a side: every cache line is used whole while it is in the first cache.

        serial rest / serial tiles of u / serial tiles of v / serial u in tile / vector v in tile
        """
        item_bytes = min((access.item_bytes for access in every if access.elements > 1), default=4)
        tile = max(self.target.vector_bytes // item_bytes, 8)
        planned = []
        for place, (run, extent) in enumerate(runs[:-1]):
            if place == across:
                continue
            loop = PlannedLoop(next(names), extent)
            planned.append(loop)
            self._spread(plan.values, run, loop_symbol(loop.name, extent))
        inner = []
        outer_names, inner_names = (next(names), next(names)), (next(names), next(names))
        kinds: tuple[LoopKind, LoopKind] = ("serial", "vector")
        for place, (run, extent) in enumerate((runs[across], runs[-1])):
            outer_name, inner_name, kind = outer_names[place], inner_names[place], kinds[place]
            if isinstance(extent, int) and extent <= tile:
                self._spread(plan.values, run, loop_symbol(inner_name, extent))
                inner.append(PlannedLoop(inner_name, extent, kind))
                continue
            chunks, inner_extent, index = planning.cut(extent, tile, outer_name, inner_name)
            self._spread(plan.values, run, index)
            planned.append(PlannedLoop(outer_name, chunks))
            inner.append(PlannedLoop(inner_name, inner_extent, kind))
        return planned + inner

    def _plan_vector(self, plan: LoopPlan, run, extent: Size, before: int, work_ns: float, names) -> list[PlannedLoop]:
        """The vector loop of an outer axis, cut in chunks when the loops before it are too few for the threads."""
        if work_ns >= 2 * planning.WORTH_A_THREAD_NS and before < planning.FEW_ITERATIONS:
            wanted = -(-planning.ENOUGH_ITERATIONS // before)
            if plan.column_mode:
                chunk = planning.chunk_elements(extent, wanted, 16, planning.COLUMN_BLOCK, 16)
            else:
                chunk = planning.chunk_elements(extent, wanted, planning.SMALLEST_CHUNK, planning.LARGEST_CHUNK, 64)
            if estimate(extent) > chunk:
                outer_name, inner_name = next(names), next(names)
                chunks, inner_extent, index = planning.cut(extent, chunk, outer_name, inner_name)
                self._spread(plan.values, run, index)
                return [PlannedLoop(outer_name, chunks), PlannedLoop(inner_name, inner_extent, "vector")]
        loop = PlannedLoop(next(names), extent, "vector")
        self._spread(plan.values, run, loop_symbol(loop.name, extent))
        return [loop]

    def _plan_inner(self, plan: LoopPlan, phase: Phase, vector: str | None, found, names) -> None:
        space = phase[0]
        in_order = self.timing.window_order(space)
        atoms = in_order or planning.order_atoms(self.timing.space_order(space), found)
        if in_order and vector != in_order[-1]:
            vector = None
        if vector is not None:
            atoms = [atom for atom in atoms if atom != vector] + [vector]
        runs = planning.merge_atoms(atoms, self.group.extents, self._strides_over(phase))
        planned: list[PlannedLoop] = []
        values: dict[str, Size] = {}
        for run, extent in runs:
            extent = substitute_sizes(extent, plan.values)
            loop = PlannedLoop(next(names), extent)
            self._spread(values, run, loop_symbol(loop.name, extent))
            planned.append(loop)
        if vector is not None:
            planned[-1].kind = "vector"
        elif isinstance(planned[-1].extent, int) and planned[-1].extent <= 8 and plan.column_mode:
            planned[-1].kind = "unroll"
        if any(timed.space == space and timed.time == phase[1] and sums_floats(timed.member) for timed in self.timed):
            planned = cascade(planned, values, names)
        plan.inner_values[phase] = values
        plan.inner[phase] = planned

    def _spread(self, values: dict[str, Size], run: tuple[str, ...], index: Size) -> None:
        """Atoms of a merged run: offsets see only the last one, which carries the whole index."""
        for atom in run[:-1]:
            values[atom] = 0
        values[run[-1]] = index

    def _work_ns(self) -> float:
        elements = cost = 0.0
        for timed in self.timed:
            numel = 1.0
            for atom in timed.member.atoms:
                numel *= max(estimate(self.group.extents[atom]), 1)
            elements += numel
            cost += numel * (timed.member.operator.cost + 1)
        traffic = sum(access.elements * access.item_bytes for _, access in self.accesses)
        return planning.work_estimate_ns(1.0, cost, traffic, self.target)


def _iterations_independent(member: Member) -> bool:
    """Whether no two iterations store to one element: else the loops run in order on one thread."""
    store = member.operator.store
    if store.indirect:
        return False
    if store.mode == "write":
        return True
    used = {name for part in member.index(store.index) for name in symbols(part)}
    return set(member.kept) <= used and all(type(part) is Symbol or isinstance(part, int) for part in store.index)


def _alone_in_a_scatter(timed: list[Timed], accesses: list[tuple[Timed, planning.Access]]) -> str | None:
    """The atom along which a scatter stores side by side: no two of its places are one element, wherever the rest of
    the index leads."""
    if len(timed) != 1 or timed[0].space or not timed[0].member.operator.store.indirect:
        return None
    member = timed[0].member
    store = member.operator.store
    found = next((access for _, access in accesses if access.store), None)
    if found is None:
        return None
    index = member.index(store.index)
    for part in index:
        if type(part) is Symbol and part.name in member.atoms and found.strides.get(part.name) == 1:
            elsewhere = [other for other in index if other is not part]
            if part.name not in found.irregular and not any(part.name in symbols(other) for other in elsewhere):
                return part.name
    return None


def _names(prefix: str):
    number = 0
    while True:
        yield f"{prefix}{number}"
        number += 1


#: Windows of more elements, and so many elements in all, are divided among lanes all the same: in order they would take
#: several times as long, and only signs of zero and what overflows on the way depend on it.
LARGEST_WINDOW_IN_ORDER, MOST_IN_ORDER = 32, 4096
#: Eager multiplies fewer elements than this one after the other.
LEAST_DIVIDED_PRODUCT = 64


def _folds_in_order(member: Member, rows: float) -> bool:
    """Whether the lanes of a vector must not fold side by side: they would mix up which element comes first."""
    reduction = member.operator.reduction
    if reduction is None or reduction.op not in ("prod", "max_of_window"):
        return False
    length = product(axis.extent for axis in reduction.axes)
    if not isinstance(length, int) or length >= LEAST_DIVIDED_PRODUCT and reduction.op == "prod":
        return False
    if reduction.op == "max_of_window" and length <= LARGEST_WINDOW_IN_ORDER:
        return True
    return rows * length <= MOST_IN_ORDER
