"""`kernel_source`: a kernel scheduled for a GPU as the text of a Triton function.

    parallel i0 in 4096:                          x = tl.program_id(0)
      accumulator a0 sum f32                      r = tl.arange(0, RBLOCK)
      vector i1 in 768: a0 += b0[768*i0 + i1]     m0 = r < 768
      b1[i0] = a0                           ->    t0 = tl.load(b0 + (768*x + r), mask=m0)
                                                  t1 = tl.where(m0, t0, 0.0)
                                                  t2 = tl.sum(t1, 0)
                                                  tl.store(b1 + x, t2)

Every operation is a line, and equal texts are one line: phases of a kernel that keeps whole rows share what they load.
Loops are written here, matrix products in `product`, attention in `attention` and `weighted_sums`, reductions in
`folds`, values and memory accesses in `values`. Equal kernels give equal texts, but for comments (lines that begin
with #), which name the operators they came from. Nothing here imports Triton or torch.
"""

from __future__ import annotations

import itertools

from lampwork.codegen.triton.attention import AttentionWriter
from lampwork.codegen.triton.expressions import cast
from lampwork.codegen.triton.folds import Total
from lampwork.codegen.triton.function import INT32_END, FunctionWriter
from lampwork.codegen.triton.online import RESCALED_GROUP, merge_exponential_sums, online_tiling, summed_exponentials
from lampwork.codegen.triton.product import ProductWriter
from lampwork.codegen.triton.tiles import (
    Form,
    Nest,
    Rescaled,
    Tiling,
    choose_tiling,
    has_row_values,
    likely,
    nest_loads,
    read_form,
    upper,
)
from lampwork.codegen.triton.unaligned_rows import AlignedRow, Moved, Stretch, unaligned_row
from lampwork.codegen.triton.values import NONE
from lampwork.codegen.triton.weighted_sums import SumsWriter
from lampwork.errors import CompileError
from lampwork.ir.attention import read_attention
from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.loops import Accumulate, Axis, Expr, Kernel, Let, Load, Local, Store, children
from lampwork.ir.program import DeviceKernel
from lampwork.ir.size import Size, add, bounds, floordiv, mod, mul, product
from lampwork.ir.target import Target
from lampwork.ir.weighted_sums import read_sums

#: Registers of a thread that loads may fill early, and up to how many programs a multiprocessor they do: with more,
#: other programs work while one waits, if registers leave room for them.
EARLY_REGISTERS, EARLY_PROGRAMS = 96, 8
#: Rows of long kernels that a multiprocessor works on at a time.
RESIDENT_ROWS = 4
#: Blocks of a row that begins anywhere from which on the full ones have a loop of their own.
FULL_BLOCKS = 4


def kernel_source(
    kernel: Kernel, target: Target, aligned_inputs: bool = True, tiling: Tiling | None = None
) -> DeviceKernel:
    """The text of `kernel` for `target` with all that compiling and launching it needs; `binary` is left empty.

    `aligned_inputs`: every parameter starts at a multiple of 16 bytes; else only those that say so. `tiling`: one of
    the kernel's `candidate_tilings` (by default the first) or `product_tilings`. Raises `CompileError` for what Triton
    cannot express, with the operator.
    """
    try:
        return _writer(kernel, target, tiling).write(aligned_inputs)
    except CompileError as error:
        if kernel.origins and not error.location.file:
            origin = kernel.origins[-1]
            raise CompileError(error.stage, error.reason, error.operator or origin.op, origin.location) from error
        raise


def _writer(kernel: Kernel, target: Target, tiling: Tiling | None) -> FunctionWriter:
    if read_attention(kernel) is not None:
        return AttentionWriter(kernel, target, tiling)
    if read_sums(kernel) is not None:
        return SumsWriter(kernel, target, tiling)
    form = read_form(kernel)
    if tiling is not None and tiling.group:
        return ProductWriter(kernel, target, form, tiling)
    return LoopWriter(kernel, target, form, tiling)


class LoopWriter(FunctionWriter):
    """One kernel: its loops."""

    def __init__(self, kernel: Kernel, target: Target, form: Form, given: Tiling | None) -> None:
        tiling = given or choose_tiling(form, kernel, target)
        if _reads_rows_from_memory(form, tiling, kernel, target):
            merged = merge_exponential_sums(form)
            if merged is not form and given is None:
                tiling = online_tiling(tiling, max(likely(product(a.extent for a in nest.axes)) for nest in form.nests))
            form = merged
        super().__init__(kernel, target, form, tiling)
        self.summed = summed_exponentials(form)

    def _outer(self) -> Size:
        grid = self._blocks()
        if self.form.nests and self.tiling.r_block:
            self._line(f"r = {self._range('RBLOCK', 'r')}")
            if likely(grid) <= EARLY_PROGRAMS * self.target.threads:
                self._load_early()
            if self.tiling.x_block == 1 and any(self._is_loop(nest) for nest in self.form.nests):
                self._load_after()
        return grid

    def _blocks(self) -> Size:
        """Lines for the outer loops' indices; the number of programs."""
        tiling, form = self.tiling, self.form
        flat = [axis for place, axis in enumerate(form.outer) if place != tiling.y_loop]
        program = "tl.program_id(0)"
        if self.kernel.horizontal:
            program = "block"
        elif self.index_type == "tl.int64":
            program += ".to(tl.int64)"
        if tiling.y_loop >= 0:
            return self._outer_tiles(flat, form.outer[tiling.y_loop], program)
        total = product(axis.extent for axis in flat)
        scalar = tiling.r_block > 0 and tiling.x_block == 1
        self.dims = (*(() if scalar else ("x",)), *(("r",) if tiling.r_block else ()))
        if scalar:
            if flat:
                self._line(f"x = {program}")
        else:
            self._line(f"x = {program} * XBLOCK + {self._range('XBLOCK', 'x')}")
            self._bound("x", "x", total, tiling.x_block)
        self._split("x", NONE if scalar else frozenset("x"), flat)
        return floordiv(add(total, tiling.x_block - 1), tiling.x_block)

    def _outer_tiles(self, flat: list[Axis], across: Axis, program: str) -> Size:
        """Two outer loops as the dimensions of a tile; what is left of the program's number is the other loops'."""
        tiling = self.tiling
        self.dims = ("y", "x")
        inner = flat[-1]
        counts = []
        rest = program
        for name, axis, block in (("x", inner, tiling.x_block), ("y", across, tiling.y_block)):
            blocks = floordiv(add(axis.extent, block - 1), block)
            counts.append(blocks)
            text = self._divisor(blocks)
            number = self.name(rest)
            last = name == "y" and len(flat) == 1
            place = number if last else self.name(f"{number} % {text}")
            size = f"{name.upper()}BLOCK"
            self._line(f"{name} = {place} * {size} + {self._range(size, name)}")
            self._bound(name, name, axis.extent, block)
            self.symbols[axis.name] = (name, frozenset(name))
            self.along[name] = (axis,) if block > 1 else ()
            rest = f"{number} // {text}"
        others = flat[:-1]
        if others:
            self._split(self.name(rest), NONE, others)
        return product([*counts, *(axis.extent for axis in others)])

    # -- Inner nests --------------------------------------------------------------------------------------------------

    def _nest(self, nest: Nest) -> None:
        length = product(upper(axis.extent) for axis in nest.axes)
        folded = [stmt for stmt in nest.body if isinstance(stmt, Accumulate)]
        if length == 0:
            for stmt in folded:
                self.locals[stmt.name] = self._fold_nothing(stmt)
            return
        if not self.tiling.r_block:
            self._unroll(nest, folded)
        elif isinstance(length, int) and length <= self.tiling.r_block:
            self._enter(nest, "r", length)
            self._statements(nest, None)
        else:
            accumulators = {stmt.name: self._start(stmt) for stmt in folded}
            for both in (stmt for stmt in nest.body if isinstance(stmt, Rescaled)):
                self._start_rescaled(both)
            before, indent, depth = dict(self.locals), self.indent, len(self.known)
            inner = nest
            if has_row_values(nest):
                for axis in nest.axes[:-1]:
                    self._open_loop(axis.name, f"range(0, {self._end(axis.extent)})")
                    index = axis.name if self.index_type == "tl.int32" else self.name(f"{axis.name}.to(tl.int64)")
                    self.symbols[axis.name] = (index, NONE)
                inner, length = Nest(nest.axes[-1:], nest.body), nest.axes[-1].extent
            around = (self.indent, len(self.known))
            for stretch in self._stretches(inner, length):
                self._enter_stretch(inner, length, stretch)
                self._statements(inner, accumulators)
                self.locals, self.indent, self.moved = dict(before), around[0], {}
                del self.known[around[1] :]
                self.masks.pop("r", None)
            self.locals, self.indent = before, indent
            del self.known[depth:]
            for done in nest.body:
                if isinstance(done, Accumulate):
                    self._finish(done, accumulators[done.name])
                elif isinstance(done, Rescaled):
                    self._finish_rescaled(done)
        self.masks.pop("r", None)

    def _stretches(self, nest: Nest, length: Size) -> list[Stretch]:
        """The loops over the blocks of a row. What is masked costs instructions: where they count, full blocks have a
        loop of their own."""
        size = self._end(length)
        row = unaligned_row(nest, self.parameters) if self.aligned_inputs else None
        if row is not None:
            first, rows = self._size(row.first)
            first = self.name(first)
            base = self.name(f"{first} // {row.line} * {row.line}")
            ahead = self.name(f"{first} - {base}")
            extent = nest.axes[-1].extent  # the last part of a row that is folded in parts is shorter
            end = f"{ahead} + {self._end(extent)}"
            if bounds(extent)[0] < 1:  # an empty row has no memory, and so no aligned vector before it
                end = f"tl.where({self._end(extent)} > 0, {end}, 0)"
            end = self.name(end)
            rows |= self._size(extent)[1]
            aligned = AlignedRow(row, base, ahead, end, rows)
            if rows or self.tiling.r_block < row.line or likely(length) < FULL_BLOCKS * self.tiling.r_block:
                return [Stretch("start", f"range(0, {size} + {row.line - 1}, RBLOCK)", True, True, aligned)]
            long = bounds(extent)[0] >= self.tiling.r_block
            blocks = self.name(f"{end} // RBLOCK" if long else f"tl.maximum({end} // RBLOCK, 1)")
            full = self.name(f"{blocks} * RBLOCK")
            return [
                Stretch("", "", True, not long, aligned),
                Stretch("start", f"range(RBLOCK, {full}, RBLOCK)", False, False, aligned),
                Stretch(full, "", False, True, aligned),
            ]
        known = all(upper(axis.extent) is axis.extent for axis in nest.axes) and len(nest.axes) == 1
        if known and any(isinstance(stmt, Rescaled) for stmt in nest.body) and mod(length, self.tiling.r_block) != 0:
            full = self._end(mul(floordiv(length, self.tiling.r_block), self.tiling.r_block))
            full = full if full.isdigit() else self.name(full)
            return [
                Stretch("start", f"range(0, {full}, RBLOCK)", False, False),
                Stretch(full, "", False, True),
            ]
        return [Stretch("start", f"range(0, {size}, RBLOCK)", False, True)]

    def _end(self, extent: Size) -> str:
        """Where a loop ends. Triton's constants have 32 bits, signed or not, where they fit: the loop's variable would
        wrap around, or the end be below zero."""
        text = self._size(extent)[0]
        if text.isdigit() and int(text) >= INT32_END:
            return f"tl.full([], {text}, tl.int64)"
        return text

    def _enter_stretch(self, nest: Nest, length: Size, stretch: Stretch) -> None:
        """The nest's indices in a stretch, and its mask; opens its loop."""
        if stretch.blocks:
            self._open_loop(stretch.start, stretch.blocks)
        else:
            self.known.append({})
        place = self.name(f"{stretch.start} + r") if stretch.start else "r"
        row = stretch.aligned
        if row is None:
            self._enter(nest, place, length)
            if not stretch.above:
                self.masks.pop("r", None)
            return
        axis = nest.axes[-1]
        dims = row.rows | {"r"}
        index = self.name(f"{place} - {row.ahead}")
        self.along.pop("r", None)  # rows begin anywhere
        self.symbols[axis.name] = (index, dims)
        inside = [f"{index} >= 0"] if stretch.below else []
        before_end = ""
        if stretch.above:
            inside.append(f"{index} < {self._size(axis.extent)[0]}")
            vector = f"r // {row.row.lanes} * {row.row.lanes}"
            vector = self.name(f"{stretch.start} + {vector}" if stretch.start else vector)
            before_end = self.name(f"{vector} < {row.end}")
        if inside:
            text = inside[0] if len(inside) == 1 else " & ".join(f"({each})" for each in inside)
            self.masks["r"] = (self.name(text), dims)
        self.moved = dict.fromkeys(row.row.loads, Moved(f"({row.base} + {place})", before_end, dims))

    def _open_loop(self, name: str, values: str) -> None:
        self._line(f"for {name} in {values}:")
        self.indent += "    "
        self.known.append({})

    def _unroll(self, nest: Nest, folded: list[Accumulate]) -> None:
        """The nest's iterations one by one; every element of the tile folds its own."""
        totals: dict[str, Total] = {}
        for place in itertools.product(*(range(likely(axis.extent)) for axis in nest.axes)):
            self.fixed = {axis.name: number for axis, number in zip(nest.axes, place)}
            for stmt in nest.body:
                if isinstance(stmt, Let):
                    self._let(stmt)
                elif isinstance(stmt, Store):
                    self._store(stmt, self.dims)
                elif isinstance(stmt, Accumulate):
                    totals[stmt.name] = self._fold_one(stmt, totals.get(stmt.name))
        self.fixed = {}
        for stmt in folded:
            op, dtype = self._fold_type(stmt)
            value, position, dims = totals[stmt.name]
            if op.startswith("arg"):
                self.locals[stmt.name] = (self.name(f"{position}.to(tl.int64)"), dims)
            else:
                self.locals[stmt.name] = (cast(self, value, dtype, self.accumulators[stmt.name].dtype), dims)

    def _load_early(self) -> None:
        """What whole rows load at known places is loaded before the first reduction: one wait for memory, not many."""
        elements = self.tiling.x_block * self.tiling.r_block // (32 * self.tiling.num_warps)
        registers = EARLY_REGISTERS
        for nest in self.form.nests:
            length = product(upper(axis.extent) for axis in nest.axes)
            if not isinstance(length, int) or not 0 < length <= self.tiling.r_block:
                continue
            self._enter(nest, "r", length)
            for load in nest_loads(nest):
                plain = load.mask is None and not load.indirect
                registers -= elements * ITEM_SIZE_BYTES[load.dtype] // 4
                if plain and registers >= 0 and self.parameters[load.buffer].access == "read":
                    self._load(load)
            self.masks.pop("r", None)

    def _is_loop(self, nest: Nest) -> bool:
        """Whether the nest's rows are folded block by block."""
        length = product(upper(axis.extent) for axis in nest.axes)
        return not isinstance(length, int) or length > self.tiling.r_block

    def _load_after(self) -> None:
        """What a row loads after loops, and does not need them (a cross entropy's target and its logit), is loaded
        before: nobody waits for it then. Many rows' values would be many registers."""
        early: set[str] = set()

        def load(expr: Expr) -> None:
            if not isinstance(expr, Load):
                for child in children(expr):
                    load(child)
            elif local_names(expr) <= early and self.parameters[expr.buffer].access == "read":
                self._load(expr)

        for stmt in self.form.row:
            if isinstance(stmt, Let) and local_names(stmt.value) <= early:
                self._let(stmt)
                early.add(stmt.name)
            elif isinstance(stmt, (Let, Store)):
                load(stmt.value)

    def _enter(self, nest: Nest, index: str, length: Size) -> None:
        """The nest's indices, and its mask: the row's end, and the ends of loops that depend on outer indices."""
        dims = frozenset("r")
        self._split(index, dims, list(nest.axes))
        self._bound("r", index, length, self.tiling.r_block)
        for axis in nest.axes:
            if upper(axis.extent) is not axis.extent:
                limit, varies = self._size(axis.extent)
                inside = self.name(f"{self.symbols[axis.name][0]} < {limit}")
                known = self.masks.get("r")
                text = inside if known is None else self.name(f"{known[0]} & {inside}")
                self.masks["r"] = (text, dims | varies | (known[1] if known else NONE))

    def _statements(self, nest: Nest, accumulators: dict[str, tuple[str, ...]] | None) -> None:
        for stmt in nest.body:
            if isinstance(stmt, Let):
                self._let(stmt)
            elif isinstance(stmt, Store):
                self._store(stmt, self.dims)
            elif isinstance(stmt, Rescaled):
                self._fold_rescaled(stmt)
            elif accumulators is None:
                self._fold_row(stmt)
            else:
                self._fold_block(stmt, accumulators[stmt.name])


def local_names(expr: Expr) -> set[str]:
    """What `expr` takes of statements before it."""
    if isinstance(expr, Local):
        return {expr.name}
    return set().union(*map(local_names, children(expr)))


def _reads_rows_from_memory(form: Form, tiling: Tiling, kernel: Kernel, target: Target) -> bool:
    """Whether rows are folded block by block and are gone from the L2 cache when they are read again."""
    if tiling.r_block < RESCALED_GROUP:
        return False
    length = min((likely(product(axis.extent for axis in nest.axes)) for nest in form.nests), default=0)
    rows = min(likely(product(axis.extent for axis in form.outer)), RESIDENT_ROWS * target.threads)
    item_bytes = min(ITEM_SIZE_BYTES[p.dtype] for p in kernel.parameters)
    return length > tiling.r_block and 2 * rows * length * item_bytes > target.l2_bytes
