"""A fusion group becomes one `Kernel`.

    group   s[i] = sum_j exp(x[i, j] - m[i]);  y[i, j] = exp(x[i, j] - m[i]) / s[i]     (m reduced in the group too)
    kernel  parallel i0: scratch r0; max over i1; sum over i1 of (r0[i1] = exp(x - max)); y[i0, i1] = r0[i1] / sum

Members are put in time order: a reduction's result is there one step after the loop that folds it. Members of one
time and
one inner space share a loop. A value that a later loop needs again is recomputed, kept in a scratch row or re-read from
the buffer it was stored to (`_keep`). Common subexpressions become Lets in the outermost body where their operands
exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from lampwork.ir.dtype import FLOATING, ITEM_SIZE_BYTES
from lampwork.ir.loops import (
    Accumulate,
    Accumulator,
    Axis,
    Buffer,
    Compute,
    Constant,
    Expr,
    Index,
    Kernel,
    Let,
    Load,
    Local,
    Loop,
    LoopKind,
    Origin,
    Parameter,
    Scratch,
    Stmt,
    Store,
)
from lampwork.ir.size import Size, Symbol, add, bounds, mul, product, symbols
from lampwork.ir.target import Target
from lampwork.schedule import loops as planning
from lampwork.schedule.cascade import cascade
from lampwork.schedule.expressions import (
    EXPENSIVE,
    Pool,
    affine_strides,
    children,
    estimate,
    find_symbol,
    flat_offset,
    nodes,
    rewriter,
    substitute_sizes,
)
from lampwork.schedule.group import FusionGroup, Member, loop_symbol
from lampwork.schedule.loops import LoopPlan, PlannedLoop

#: A row kept between the loops of one kernel stays in the first caches.
LARGEST_SCRATCH_BYTES = 64 << 10
#: Nesting of one expression beyond which a part gets a name: keeps recursive walks shallow.
DEEPEST_EXPRESSION = 24


#: The loops of one time over one inner space.
Phase = tuple[frozenset[str], int]
ROW: Phase = (frozenset(), 0)


@dataclass(frozen=True)
class Built:
    """A kernel with the segment's names of its parameters and sizes. `traffic_bytes`: what it reads and writes."""

    kernel: Kernel
    buffers: tuple[str, ...]
    sizes: tuple[str, ...]
    origins: tuple[Origin, ...]
    read_bytes: int
    written_bytes: int


def build_kernel(group: FusionGroup, buffers: Mapping[str, Buffer], needed: frozenset[str], target: Target) -> Built:
    """The kernel of `group`. Buffers in `needed` are stored; other buffers that it produces stay inside."""
    return _Builder(group, buffers, needed, target).build()


@dataclass(eq=False)
class _Timed:
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


@dataclass(eq=False)
class _Scope:
    """A body under construction and what is visible in it."""

    depth: int
    names: frozenset[str]
    body: list[Stmt] = field(default_factory=list)
    maybe_empty: bool = False


class _Builder:
    def __init__(
        self, group: FusionGroup, buffers: Mapping[str, Buffer], needed: frozenset[str], target: Target
    ) -> None:
        self.group, self.buffers, self.needed, self.target = group, buffers, needed, target
        self.pool = Pool()
        self.parameters: dict[str, str] = {}  # segment name -> b0..
        self.access: dict[str, set[str]] = {}
        self.timed: list[_Timed] = []
        self.by_buffer: dict[str, _Timed] = {}
        self.named: dict[int, Local] = {}
        self.lets = 0
        self.accumulator_scope: dict[str, int] = {}
        self.block_accumulators = 0
        self.rewriters: dict[tuple, object] = {}

    # -- The stages ---------------------------------------------------------------------------------------------------

    def build(self) -> Built:
        self._order_members()
        self._find_accesses()
        self.plan = self._plan_loops()
        self._keep_values()
        self._rename_sizes()
        body = self._emit()
        return self._finish(body)

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
            timed = _Timed(len(self.timed), member, space, time, time + 1 if later else time)
            self.timed.append(timed)
            self.by_buffer[member.buffer] = timed

    def _find_accesses(self) -> None:
        """Flat offsets of everything that touches memory, and all other index expressions that loops must respect."""
        self.accesses: list[tuple[_Timed, planning.Access]] = []
        self.positions: list[tuple[_Timed, Size]] = []
        group = self.group
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
                self.positions.append((timed, self._position(member)))
        self.extents = group.extents

    def _add_access(self, timed: _Timed, offset: Size, buffer: Buffer, store: bool, gathered: bool) -> None:
        atoms = timed.member.atoms if not store else timed.member.kept
        item_bytes = ITEM_SIZE_BYTES[buffer.dtype]
        access = planning.make_access(offset, item_bytes, store, atoms, self.group.extents, gathered)
        self.accesses.append((timed, access))

    def _position(self, member: Member) -> Size:
        """Row-major position over the reduction axes (argmax, argmin)."""
        position: Size = 0
        for axis in member.operator.reduction.axes:
            position = add(mul(position, axis.extent), member.values[axis.name])
        return position

    # -- Loops --------------------------------------------------------------------------------------------------------

    def _plan_loops(self) -> LoopPlan:
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
        safe = all(_iterations_independent(timed.member) for timed in self.timed)
        column, column_cost = self._best(outer, every)
        rows: dict[frozenset[str], str | None] = {}
        if spaces:
            row_cost = 0.0
            for space, found in spaces.items():
                rows[space], cost = self._best(planning.order_atoms(self._space_order(space), found), found)
                row_cost += cost + self._fold_cost(space)
            inside = [access for timed, access in self.accesses if timed.space]
            column_cost = self._cost(column, inside) if column is not None else 0.0
            plan.column_mode = safe and column is not None and column_cost < row_cost
        vector_outer = column if safe and (plan.column_mode or not spaces) else None
        names = _names("i")
        self._plan_outer(plan, outer, vector_outer, every, safe, names)
        for space, found in spaces.items():
            vector = None if plan.column_mode or not safe else rows[space]
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

        def seen(timed: _Timed, store: bool) -> bool:
            if phase is None:
                return True
            space, time = phase
            if timed.space != space:
                return False
            # An earlier value may be computed again here, but it is stored once.
            return timed.time == time or (timed.time < time and not store and not timed.member.operator.reduction)

        extents = self.group.extents
        found = [(access.strides, access.irregular) for timed, access in self.accesses if seen(timed, access.store)]
        found += [affine_strides(value, extents) for timed, value in self.positions if seen(timed, False)]
        found += [affine_strides(extent, extents) for extent in extents.values() if not isinstance(extent, int)]
        if phase is not None:
            # Elements that an earlier loop stored, and positions in a scratch row (row-major over its space).
            rows = [timed for timed in self.timed if timed.space and timed.space <= phase[0]]
            found += [affine_strides(self._row_offset(row), extents) for row in {timed.space for timed in rows}]
            read = {
                load.buffer
                for timed in rows
                if timed.time == phase[1]
                for load in timed.member.operator.loads
            }
            found += [
                (access.strides, access.irregular)
                for timed, access in self.accesses
                if access.store and timed.member.buffer in read
            ]
        return found

    def _row_offset(self, space: frozenset[str]) -> Size:
        offset: Size = 0
        for atom in self._space_order(space):
            offset = add(mul(offset, self.group.extents[atom]), self.group.symbol(atom))
        return offset

    def _space_order(self, space: frozenset[str]) -> list[str]:
        """One order of a space's atoms for all who run over it: that of the first member."""
        for timed in self.timed:
            if timed.space == space:
                return list(self.group.inner_atoms(timed.member))
        raise KeyError(space)

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
                chunk = planning.chunk_elements(
                    extent, wanted, planning.SMALLEST_CHUNK, planning.LARGEST_CHUNK, 64
                )
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
        atoms = planning.order_atoms(self._space_order(space), found)
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
        if any(timed.space == space and timed.time == phase[1] and _sums_floats(timed.member) for timed in self.timed):
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

    # -- Values that several loops need -------------------------------------------------------------------------------

    def _keep_values(self) -> None:
        for timed in self.timed:
            member = timed.member
            if member.operator.reduction or not timed.space:
                continue
            if member.buffer in self.needed:
                timed.keep = "memory"
                continue
            later = any(
                other.time > timed.time and any(load.buffer == member.buffer for load in other.member.operator.loads)
                for other in self.timed
            )
            timed.keep = self._keep(timed) if later else "recompute"
            if timed.keep == "memory":
                self.needed = self.needed | {member.buffer}

    def _keep(self, timed: _Timed) -> str:
        operator = timed.member.operator
        scattered = any(load.indirect or load.mask is not None for load in operator.loads)
        if operator.cost < EXPENSIVE and not scattered and len(operator.loads) < 3:
            return "recompute"
        numel = product(self.group.extents[atom] for atom in timed.space)
        item_bytes = ITEM_SIZE_BYTES[self.buffers[timed.member.buffer].dtype]
        if self.plan.column_mode or not isinstance(numel, int) or numel * item_bytes > LARGEST_SCRATCH_BYTES:
            return "memory"
        return "scratch"

    # -- Emission -----------------------------------------------------------------------------------------------------

    def _rename_sizes(self) -> None:
        """Sizes of the program get canonical names s0.. in order of first use."""
        used: dict[str, None] = {}
        values: list[Size] = [loop.extent for loop in self.plan.outer]
        values += [loop.extent for planned in self.plan.inner.values() for loop in planned]
        values += [access.offset for _, access in self.accesses] + [value for _, value in self.positions]
        for timed in self.timed:
            for name in [*(load.buffer for load in timed.member.operator.loads), timed.member.buffer]:
                values += [*self.buffers[name].shape, *self.buffers[name].strides]
            for load in timed.member.operator.loads:
                values += timed.member.index(load.index)
        loop_names = {loop.name for loop in self.plan.outer}
        loop_names |= {loop.name for planned in self.plan.inner.values() for loop in planned}
        bound = {name for timed in self.timed for load in timed.member.operator.loads for name, _ in load.indirect}
        bound |= {name for timed in self.timed for name, _ in timed.member.operator.store.indirect}
        found: dict[str, Symbol] = {}
        for value in values:
            if isinstance(value, int):
                continue
            for name in sorted(symbols(value)):
                if name not in self.group.extents and name not in loop_names and name not in bound:
                    used.setdefault(name)
                    if name not in found:
                        symbol = find_symbol(value, name)
                        assert symbol is not None
                        found[name] = symbol
        self.size_names = tuple(used)
        self.size_values = {
            name: Symbol(f"s{place}", found[name].lower, found[name].upper) for place, name in enumerate(used)
        }
        self.values = {
            phase: {
                **{
                    atom: substitute_sizes(value, self.size_values)
                    for atom, value in {**self.plan.values, **inner}.items()
                },
                **self.size_values,
            }
            for phase, inner in {ROW: {}, **self.plan.inner_values}.items()
        }
        for planned in [self.plan.outer, *self.plan.inner.values()]:
            for loop in planned:
                loop.extent = substitute_sizes(loop.extent, self.size_values)

    def _values(self, space: frozenset[str], time: int) -> dict[str, Size]:
        """Atoms and sizes as expressions of the kernel's symbols, in the loops over `space` at `time`."""
        return self.values[space, time] if space else self.values[ROW]

    def _parameter(self, buffer: str, access: str) -> str:
        name = self.parameters.get(buffer)
        if name is None:
            name = self.parameters[buffer] = f"b{len(self.parameters)}"
        self.access.setdefault(buffer, set()).add(access)
        return name

    def _value(self, timed: _Timed, time: int, space: frozenset[str]) -> Expr:
        """The pooled value of a member as computed in the loop of `time` over `space`."""
        return self._rewriter(timed, time, space)(timed.member.operator.value)

    def _rewriter(self, timed: _Timed, time: int, space: frozenset[str]):
        key = (timed.order, time, space)
        found = self.rewriters.get(key)
        if found is not None:
            return found
        member = timed.member

        def on_load(load: Load, index: tuple[Size, ...], indirect: tuple, mask: Expr | None) -> Expr:
            source = self.by_buffer.get(load.buffer)
            if source is not None and source.order < timed.order:
                value = self._produced(source, load, time, space)
                if value is not None:
                    if mask is not None:
                        other = self.pool.constant(load.other, load.dtype)
                        value = self.pool.compute("where", (mask, value, other), load.dtype)
                    return value
            strides = tuple([substitute_sizes(s, self.size_values) for s in self.buffers[load.buffer].strides])
            name = self._parameter(load.buffer, "read")
            return self.pool.load(name, (flat_offset(index, strides),), load.dtype, indirect, mask, load.other)

        values = {name: substitute_sizes(value, self._values(space, time)) for name, value in member.values.items()}
        found = rewriter(self.pool, {**self.size_values, **values}, on_load)
        self.rewriters[key] = found
        return found

    def _produced(self, source: _Timed, load: Load, time: int, space: frozenset[str]) -> Expr | None:
        """The value of an element that this kernel made itself; None: read it from memory."""
        operator = source.member.operator
        if operator.reduction:
            return self._accumulated(source)
        if not source.space or time == source.time or source.keep == "recompute":
            return self.pool.compute("cast", (self._value(source, time, space),), load.dtype)
        if source.keep == "scratch":
            offset = substitute_sizes(self._row_offset(source.space), self._values(space, time))
            return self.pool.load(source.scratch, (offset,), load.dtype)
        return None

    def _accumulated(self, source: _Timed) -> Expr:
        reduction = source.member.operator.reduction
        dtype = "int64" if reduction.op.startswith("arg") else reduction.dtype
        value = self.pool.local(source.accumulator, dtype)
        return self.pool.compute("cast", (value,), self.buffers[source.member.buffer].dtype)

    def _emit(self) -> tuple[Stmt, ...]:
        planned = self.plan.outer
        parallel = 0
        while parallel < len(planned) and planned[parallel].kind == "parallel":
            parallel += 1
        scopes = [_Scope(0, frozenset(loop.name for loop in planned[:parallel]))]
        for loop in planned[parallel:]:
            scopes.append(self._scope(len(scopes), loop))
        self.row = len(scopes) - 1
        self.scopes = scopes
        for number, timed in enumerate(t for t in self.timed if t.member.operator.reduction):
            timed.accumulator = f"a{number}"
            self.accumulator_scope[timed.accumulator] = self.row
        for number, timed in enumerate(t for t in self.timed if t.keep == "scratch"):
            timed.scratch = f"r{number}"
            numel = product(self.group.extents[atom] for atom in timed.space)
            assert isinstance(numel, int)  # see _keep
            scopes[-1].body.append(Scratch(timed.scratch, self.buffers[timed.member.buffer].dtype, numel))
        last = max(timed.time for timed in self.timed)
        for time in range(last + 2):
            self._emit_row(time)
            done: set[frozenset[str]] = set()
            for timed in self.timed:
                if timed.time == time and timed.space and timed.space not in done:
                    done.add(timed.space)
                    self._emit_loop(time, timed.space)
        for place in range(len(scopes) - 1, 0, -1):
            loop = planned[parallel + place - 1]
            scopes[place - 1].body.append(_loop(loop, scopes[place].body))
        body = scopes[0].body
        for loop in reversed(planned[:parallel]):
            body = [_loop(loop, body)]
        return tuple(body)

    def _scope(self, depth: int, loop: PlannedLoop) -> _Scope:
        maybe_empty = not loop.piece and bounds(loop.extent)[0] < 1
        return _Scope(depth, frozenset((loop.name,)), maybe_empty=maybe_empty)

    def _emit_row(self, time: int) -> None:
        """Statements between the loops: results of reductions, and members without an inner space."""
        ready = []
        for timed in self.timed:
            if timed.member.buffer not in self.needed:
                continue
            if timed.member.operator.reduction:
                if timed.available == time:
                    ready.append((timed, self._accumulated(timed)))
            elif not timed.space and timed.time == time:
                ready.append((timed, self.pool.compute("cast", (self._value(timed, time, timed.space),),
                self._dtype(timed))))
        if ready:
            stores: list[Stmt] = [self._store(timed, value, time) for timed, value in ready]
            self._emit_statements(self.scopes, stores)

    def _dtype(self, timed: _Timed) -> str:
        return self.buffers[timed.member.buffer].dtype

    def _emit_loop(self, time: int, space: frozenset[str]) -> None:
        planned = self.plan.inner[space, time]
        scopes = list(self.scopes)
        for loop in planned:
            scopes.append(self._scope(len(scopes), loop))
        statements: list[Stmt] = []
        row = self.scopes[-1].body
        accumulators: list[Stmt] = []
        folds: dict[str, list[tuple[Accumulator, Accumulate]]] = {}
        for timed in self.timed:
            if timed.time != time or timed.space != space:
                continue
            reduction = timed.member.operator.reduction
            if reduction:
                is_position = reduction.op.startswith("arg")
                value = self._value(timed, time, space)
                dtype = value.dtype if is_position else reduction.dtype
                if not is_position:
                    value = self.pool.compute("cast", (value,), dtype)
                accumulators.append(Accumulator(timed.accumulator, reduction.op, dtype))
                target = timed.accumulator
                if _sums_floats(timed.member):
                    target = self._blocks(planned, target, dtype, folds)
                position = None
                if is_position:
                    position = substitute_sizes(self._position(timed.member), self._values(space, time))
                statements.append(Accumulate(target, value, position))
            elif timed.keep in ("memory", "scratch"):
                value = self.pool.compute("cast", (self._value(timed, time, timed.space),), self._dtype(timed))
                statements.append(self._store(timed, value, time))
        if not statements:
            return
        inner_named = dict(self.named)
        self._emit_statements(scopes, statements)
        row.extend(accumulators)
        for place in range(len(scopes) - 1, self.row, -1):
            loop = planned[place - self.row - 1]
            pairs = folds.get(loop.name, [])
            body = [*(pair[0] for pair in pairs), *scopes[place].body, *(pair[1] for pair in pairs)]
            scopes[place - 1].body.append(_loop(loop, body))
        # Names made inside the loops end with them; those hoisted into the row stay.
        self.named = {
            key: local for key, local in self.named.items() if key in inner_named or local.name in self.row_names
        }

    def _blocks(
        self,
        planned: list[PlannedLoop],
        accumulator: str,
        dtype: str,
        folds: dict[str, list[tuple[Accumulator, Accumulate]]],
    ) -> str:
        """The accumulator that the innermost loop adds to; `folds` gets those of all loops that cascade."""
        for loop in planned:
            if loop.cascades:
                own = f"a{len(self.accumulator_scope) + self.block_accumulators}"
                self.block_accumulators += 1
                pair = Accumulator(own, "sum", dtype), Accumulate(accumulator, Local(own, dtype))
                folds.setdefault(loop.name, []).append(pair)
                accumulator = own
        return accumulator

    @property
    def row_names(self) -> set[str]:
        return {stmt.name for scope in self.scopes for stmt in scope.body if type(stmt) is Let}

    def _store(self, timed: _Timed, value: Expr, time: int) -> Store:
        member, store = timed.member, timed.member.operator.store
        if timed.keep == "scratch":
            offset = substitute_sizes(self._row_offset(timed.space), self._values(timed.space, time))
            return Store(timed.scratch, (offset,), value)
        strides = tuple([substitute_sizes(s, self.size_values) for s in self.buffers[member.buffer].strides])
        # A reduction is stored after its loops, where only the row is known.
        space = frozenset() if member.operator.reduction else timed.space
        values = {name: substitute_sizes(part, self._values(space, time)) for name, part in member.values.items()}
        index = tuple([substitute_sizes(part, {**self.size_values, **values}) for part in store.index])
        rewrite = self._rewriter(timed, time, space)
        indirect, names = [], {}
        for name, bound in store.indirect:
            pooled = rewrite(bound)
            new_name = self.pool.symbol_of(pooled)
            symbol = next(found for part in index if (found := find_symbol(part, name)) is not None)
            names[name] = Symbol(new_name, symbol.lower, symbol.upper)
            indirect.append((new_name, pooled))
        if names:
            index = tuple([substitute_sizes(part, names) for part in index])
        access = "add" if store.mode == "add" else "write"
        name = self._parameter(member.buffer, access)
        return Store(name, (flat_offset(index, strides),), value, store.mode, tuple(dict(indirect).items()))

    def _emit_statements(self, scopes: list[_Scope], statements: list[Stmt]) -> None:
        """Lets for what is shared or can be hoisted, then the statements: every read comes before every write."""
        roots: list[Expr] = []
        for stmt in statements:
            roots.append(stmt.value)
            if type(stmt) is Store:
                roots.extend(value for _, value in stmt.indirect)
        counts: dict[int, int] = {}
        for root in roots:
            counts[id(root)] = counts.get(id(root), 0) + 1
        for node in nodes(roots):
            for child in children(node):
                counts[id(child)] = counts.get(id(child), 0) + 1
        stored = {stmt.buffer for stmt in statements if type(stmt) is Store}
        place = _Placer(self, scopes, counts, stored)
        deepest = len(scopes) - 1
        finished: list[Stmt] = []
        for stmt in statements:
            value, _ = place.visit(stmt.value, deepest)
            if type(stmt) is Store:
                indirect = tuple((name, place.visit(bound, deepest)[0]) for name, bound in stmt.indirect)
                finished.append(Store(stmt.buffer, stmt.index, value, stmt.mode, indirect))
            else:
                finished.append(Accumulate(stmt.name, value, stmt.position))
        scopes[-1].body.extend(finished)

    # -- The kernel ---------------------------------------------------------------------------------------------------

    def _finish(self, body: tuple[Stmt, ...]) -> Built:
        parameters = []
        read_bytes = written_bytes = 0
        for buffer_name, name in self.parameters.items():
            buffer = self.buffers[buffer_name]
            kinds = self.access[buffer_name]
            usage: Literal["read", "write", "readwrite"] = "readwrite"
            if kinds == {"read"}:
                usage = "read"
            elif kinds == {"write"}:
                usage = "write"
            numel = substitute_sizes(storage_numel(buffer), self.size_values)
            # Alignment is worth knowing where it lets stores bypass the cache; for loads it would only keep the kernel
            # of a first layer, which reads an input, apart from the kernels of the others.
            aligned = usage != "read" and buffer.kind == "intermediate"
            parameters.append(Parameter(name, buffer.dtype, usage, numel, aligned))
        for _, access in self.accesses:
            touched = 1
            for atom, stride in access.strides.items():
                if stride != 0:
                    touched *= max(estimate(self.group.extents[atom]), 1)
            for atom in access.irregular:
                touched *= max(estimate(self.group.extents[atom]), 1)
            size = (access.elements if access.gathered else min(touched, access.elements)) * access.item_bytes
            if access.store:
                written_bytes += size
            else:
                read_bytes += size
        origins = tuple(dict.fromkeys(o for timed in self.timed for o in timed.member.operator.origins))
        sizes = tuple(f"s{place}" for place in range(len(self.size_names)))
        kernel = Kernel("", tuple(parameters), body, sizes, origins)
        return Built(kernel, tuple(self.parameters), self.size_names, origins, read_bytes, written_bytes)


class _Placer:
    """Decides for each node of an expression graph in which body it is computed, and whether it gets a name."""

    def __init__(self, builder: _Builder, scopes: list[_Scope], counts: dict[int, int], stored: set[str]) -> None:
        self.builder, self.scopes, self.counts, self.stored = builder, scopes, counts, stored
        self.depth_of = {name: scope.depth for scope in scopes for name in scope.names}
        self.depth_of.update(builder.accumulator_scope)

    def visit(self, expr: Expr, user: int) -> tuple[Expr, int]:
        """`expr` as an operand in the body at depth `user`, and the height of the expression returned."""
        if type(expr) in (Constant, Index, Local):
            return expr, 0
        named = self.builder.named.get(id(expr))
        if named is not None:
            return named, 0
        depth = self._depth(expr, user)
        new, height = self._rebuild(expr, depth)
        shared = self.counts.get(id(expr), 0) > 1
        overwritten = type(expr) is Load and expr.buffer in self.stored
        if depth < user or shared or overwritten or height >= DEEPEST_EXPRESSION:
            local = Local(f"t{self.builder.lets}", expr.dtype)
            self.builder.lets += 1
            self.scopes[depth].body.append(Let(local.name, new))
            self.builder.named[id(expr)] = local
            return local, 0
        return new, height

    def _depth(self, expr: Expr, user: int) -> int:
        depth = max((self.depth_of.get(name, 0) for name in self.builder.pool.free(expr)), default=0)
        # Memory is not read for loops that may not run at all.
        for scope in self.scopes[depth + 1 : user + 1]:
            if scope.maybe_empty:
                depth = scope.depth
        return min(depth, user)

    def _rebuild(self, expr: Expr, depth: int) -> tuple[Expr, int]:
        if type(expr) is Compute:
            parts = [self.visit(arg, depth) for arg in expr.args]
            height = 1 + max((part[1] for part in parts), default=0)
            return Compute(expr.op, tuple([part[0] for part in parts]), expr.dtype), height
        if not expr.indirect and expr.mask is None:
            return expr, 1
        indirect = tuple((name, self.visit(value, depth)[0]) for name, value in expr.indirect)
        mask = self.visit(expr.mask, depth)[0] if expr.mask is not None else None
        return Load(expr.buffer, expr.index, expr.dtype, indirect, mask, expr.other), 1


def storage_numel(buffer: Buffer) -> Size:
    """Elements from the first to the last of a strided buffer."""
    last: Size = 1
    for extent, stride in zip(buffer.shape, buffer.strides):
        if extent == 0:
            return 0
        last = add(last, mul(add(extent, -1), stride))
    return last


def _iterations_independent(member: Member) -> bool:
    """Whether no two iterations store to one element: else the loops run in order on one thread."""
    store = member.operator.store
    if store.indirect:
        return False
    if store.mode == "write":
        return True
    used = {name for part in member.index(store.index) for name in symbols(part)}
    return set(member.kept) <= used and all(type(part) is Symbol or isinstance(part, int) for part in store.index)


def _sums_floats(member: Member) -> bool:
    reduction = member.operator.reduction
    return reduction is not None and reduction.op == "sum" and reduction.dtype in FLOATING


def _loop(loop: PlannedLoop, body: list[Stmt]) -> Loop:
    return Loop(Axis(loop.name, loop.extent), tuple(body), loop.kind, loop.grain)


def _names(prefix: str):
    number = 0
    while True:
        yield f"{prefix}{number}"
        number += 1
