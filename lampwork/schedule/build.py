"""A fusion group becomes one `Kernel`.

    group   s[i] = sum_j exp(x[i, j] - m[i]);  y[i, j] = exp(x[i, j] - m[i]) / s[i]     (m reduced in the group too)
    kernel  parallel i0: scratch r0; max over i1; sum over i1 of (r0[i1] = exp(x - max)); y[i0, i1] = r0[i1] / sum

Members are put in time order (`timing`), loops are arranged (`arrange`), and here they are filled in. A value that a
later loop needs again is recomputed, kept in a scratch row or re-read from the buffer it was stored to (`_keep`).
Common subexpressions become Lets in the outermost body where their operands exist (`lets`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from lampwork.ir.dtype import FLOATING, ITEM_SIZE_BYTES
from lampwork.ir.loops import (
    FIRSTS,
    Accumulate,
    Accumulator,
    Axis,
    Buffer,
    Expr,
    Kernel,
    Let,
    Load,
    Local,
    Loop,
    Origin,
    Parameter,
    Scratch,
    Stmt,
    Store,
    storage_numel,
)
from lampwork.ir.record import record
from lampwork.ir.size import Size, Symbol, bounds, product, symbols
from lampwork.ir.target import Target
from lampwork.schedule.arrange import arrange
from lampwork.schedule.expressions import (
    EXPENSIVE,
    Pool,
    estimate,
    find_symbol,
    flat_offset,
    in_two_steps,
    rewriter,
    substitute_sizes,
)
from lampwork.schedule.group import FusionGroup
from lampwork.schedule.lets import Names, Scope
from lampwork.schedule.loops import PlannedLoop
from lampwork.schedule.tiles import arrange_tiles, kernels_of
from lampwork.schedule.timing import ROW, Timed, Timing, sums_floats
from lampwork.turns import give_way

#: A row kept between the loops of one kernel stays in the first caches.
LARGEST_SCRATCH_BYTES = 64 << 10


@record
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
    give_way()
    return _Builder(group, buffers, needed, target).build()


class _Builder:
    def __init__(
        self, group: FusionGroup, buffers: Mapping[str, Buffer], needed: frozenset[str], target: Target
    ) -> None:
        self.group, self.buffers, self.needed, self.target = group, buffers, needed, target
        self.pool = Pool()
        self.parameters: dict[str, str] = {}  # segment name -> b0..
        self.access: dict[str, set[str]] = {}
        self.names = Names(self.pool)
        self.block_accumulators = 0
        self.rewriters: dict[tuple, object] = {}

    # -- The stages ---------------------------------------------------------------------------------------------------

    def build(self) -> Built:
        # Where nothing that one thread stored is read by another of the same kernel, values are recomputed.
        self.recomputes = kernels_of(self.target).independent_threads
        self._arrange()
        while kept := self._keep_values():
            # Loops respect the layout of all memory that they touch, this too: they are arranged again.
            self.needed |= kept
            self._arrange()
        self._rename_sizes()
        body = self._emit()
        return self._finish(body)

    def _arrange(self) -> None:
        self.timing = Timing(self.group, self.buffers, self.needed)
        self.timed, self.by_buffer, self.accesses = self.timing.timed, self.timing.by_buffer, self.timing.accesses
        self.plan = arrange_tiles(self.timing) if self.recomputes else arrange(self.timing, self.target)

    # -- Values that several loops need -------------------------------------------------------------------------------

    def _keep_values(self) -> frozenset[str]:
        """Decides how each value is kept; returns the buffers that this needs and `needed` lacks."""
        memory = set()
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
            timed.keep = self._keep(timed) if later and not self.recomputes else "recompute"
            if timed.keep == "memory":
                memory.add(member.buffer)
        return frozenset(memory)

    def _keep(self, timed: Timed) -> str:
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
        values += [access.offset for _, access in self.accesses] + [value for _, value in self.timing.positions]
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
            name: Symbol(f"s{place}", found[name].lower, found[name].upper, found[name].seen)
            for place, name in enumerate(used)
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

    def _value(self, timed: Timed, time: int, space: frozenset[str]) -> Expr:
        """The pooled value of a member as computed in the loop of `time` over `space`."""
        return self._rewriter(timed, time, space)(timed.member.operator.value)

    def _rewriter(self, timed: Timed, time: int, space: frozenset[str]):
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

        found = rewriter(self.pool, self._values(space, time), on_load, first=member.values)
        self.rewriters[key] = found
        return found

    def _produced(self, source: Timed, load: Load, time: int, space: frozenset[str]) -> Expr | None:
        """The value of an element that this kernel made itself; None: read it from memory."""
        operator = source.member.operator
        if operator.reduction:
            return self._accumulated(source)
        if not source.space or time == source.time or source.keep == "recompute" or self.recomputes:
            return self.pool.compute("cast", (self._value(source, time, space),), load.dtype)
        if source.keep == "scratch":
            offset = substitute_sizes(self.timing.row_offset(source.space), self._values(space, time))
            return self.pool.load(source.scratch, (offset,), load.dtype)
        return None

    def _accumulated(self, source: Timed) -> Expr:
        reduction = source.member.operator.reduction
        assert reduction is not None
        dtype = "int64" if reduction.op.startswith("arg") else reduction.dtype
        value = self.pool.local(source.accumulator, dtype)
        return self.pool.compute("cast", (value,), self.buffers[source.member.buffer].dtype)

    def _emit(self) -> tuple[Stmt, ...]:
        planned = self.plan.outer
        parallel = 0
        while parallel < len(planned) and planned[parallel].kind == "parallel":
            parallel += 1
        scopes = [Scope(0, frozenset(loop.name for loop in planned[:parallel]))]
        for loop in planned[parallel:]:
            scopes.append(self._scope(len(scopes), loop))
        self.row = len(scopes) - 1
        self.scopes = scopes
        for number, timed in enumerate(t for t in self.timed if t.member.operator.reduction):
            timed.accumulator = f"a{number}"
            self.names.accumulator_depth[timed.accumulator] = self.row
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

    def _scope(self, depth: int, loop: PlannedLoop) -> Scope:
        maybe_empty = not loop.piece and bounds(loop.extent)[0] < 1
        return Scope(depth, frozenset((loop.name,)), maybe_empty=maybe_empty)

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
                ready.append(
                    (timed, self.pool.compute("cast", (self._value(timed, time, timed.space),), self._dtype(timed)))
                )
        if ready:
            stores = [self._store(timed, value, time) for timed, value in ready]
            self.names.emit(self.scopes, stores)

    def _dtype(self, timed: Timed) -> str:
        return self.buffers[timed.member.buffer].dtype

    def _emit_loop(self, time: int, space: frozenset[str]) -> None:
        planned = self.plan.inner[space, time]
        scopes = list(self.scopes)
        for loop in planned:
            scopes.append(self._scope(len(scopes), loop))
        statements: list[Store | Accumulate] = []
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
                if sums_floats(timed.member):
                    target = self._blocks(planned, target, dtype, folds)
                position = None
                if is_position or self.recomputes and reduction.op in FIRSTS and dtype in FLOATING:
                    position = substitute_sizes(self.timing.position(timed.member), self._values(space, time))
                statements.append(Accumulate(target, value, position))
            elif timed.keep in ("memory", "scratch"):
                value = self.pool.compute("cast", (self._value(timed, time, timed.space),), self._dtype(timed))
                statements.append(self._store(timed, value, time))
        if not statements:
            return
        inner_named = dict(self.names.named)
        self.names.emit(scopes, statements)
        row.extend(accumulators)
        for place in range(len(scopes) - 1, self.row, -1):
            loop = planned[place - self.row - 1]
            pairs = folds.get(loop.name, [])
            body = [*(pair[0] for pair in pairs), *scopes[place].body, *(pair[1] for pair in pairs)]
            scopes[place - 1].body.append(_loop(loop, body))
        # Names made inside the loops end with them; those hoisted into the row stay.
        self.names.named = {
            key: local for key, local in self.names.named.items() if key in inner_named or local.name in self.row_names
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
                own = f"a{len(self.names.accumulator_depth) + self.block_accumulators}"
                self.block_accumulators += 1
                pair = Accumulator(own, "sum", dtype), Accumulate(accumulator, Local(own, dtype))
                folds.setdefault(loop.name, []).append(pair)
                accumulator = own
        return accumulator

    @property
    def row_names(self) -> set[str]:
        return {stmt.name for scope in self.scopes for stmt in scope.body if type(stmt) is Let}

    def _store(self, timed: Timed, value: Expr, time: int) -> Store:
        member, store = timed.member, timed.member.operator.store
        if timed.keep == "scratch":
            offset = substitute_sizes(self.timing.row_offset(timed.space), self._values(timed.space, time))
            return Store(timed.scratch, (offset,), value)
        strides = tuple([substitute_sizes(s, self.size_values) for s in self.buffers[member.buffer].strides])
        # A reduction is stored after its loops, where only the row is known.
        space = frozenset() if member.operator.reduction else timed.space
        index = tuple([in_two_steps(part, member.values, self._values(space, time)) for part in store.index])
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
            # of a first layer, which reads an input, different from the kernels of the others.
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


def _loop(loop: PlannedLoop, body: list[Stmt]) -> Loop:
    return Loop(Axis(loop.name, loop.extent), tuple(body), loop.kind, loop.grain)
