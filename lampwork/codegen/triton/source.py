"""`kernel_source`: a kernel scheduled for a GPU as the text of a Triton function.

    parallel i0 in 4096:                          x = tl.program_id(0)
      accumulator a0 sum f32                      r = tl.arange(0, RBLOCK)
      vector i1 in 768: a0 += b0[768*i0 + i1]     m0 = r < 768
      b1[i0] = a0                           ->    t0 = tl.load(b0 + (768*x + r), mask=m0)
                                                  t1 = tl.where(m0, t0, 0.0)
                                                  t2 = tl.sum(t1, 0)
                                                  tl.store(b1 + x, t2)

Every operation is a line, and equal texts are one line: phases of a kernel that keeps whole rows share what they load.
Equal kernels give equal texts, but for comments (lines that begin with #), which name the operators they came from.
Nothing here imports Triton or torch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from lampwork.codegen.triton.expressions import (
    COMBINE,
    COMPARISONS,
    HALF,
    HELPERS,
    POINTERS,
    TYPES,
    cast,
    identity,
    literal,
    operation,
    takes_literal,
    typed,
)
from lampwork.codegen.triton.online import merge_exponential_sums
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
from lampwork.errors import CompileError
from lampwork.ir.dtype import ITEM_SIZE_BYTES, NATIVE
from lampwork.ir.loops import (
    Accumulate,
    Accumulator,
    Axis,
    Compute,
    Constant,
    Expr,
    Index,
    Kernel,
    Let,
    Load,
    Local,
    Parameter,
    Store,
)
from lampwork.ir.program import DeviceKernel
from lampwork.ir.size import (
    FloorDiv,
    Max,
    Min,
    Mod,
    Product,
    Size,
    Sum,
    Symbol,
    add,
    bounds,
    floordiv,
    mul,
    product,
    substitute,
    symbols,
)
from lampwork.ir.target import Target

#: A text and the dimensions of the tile it varies along.
Value = tuple[str, frozenset[str]]
_NONE: frozenset[str] = frozenset()
#: Registers of a thread that loads may fill early, and up to how many programs a multiprocessor they do: with more,
#: other programs work while one waits, if registers leave room for them.
EARLY_REGISTERS, EARLY_PROGRAMS = 96, 8
#: Rows of long kernels that a multiprocessor works on at a time.
RESIDENT_ROWS = 4
#: Types that atomic additions exist for; bfloat16 from sm_90 on.
ATOMIC = frozenset({"float64", "float32", "float16", "bfloat16", "int64", "uint64", "int32", "uint32"})


def kernel_source(
    kernel: Kernel, target: Target, aligned_inputs: bool = True, tiling: Tiling | None = None
) -> DeviceKernel:
    """The text of `kernel` for `target` with all that compiling and launching it needs; `binary` is left empty.

    `aligned_inputs`: every parameter starts at a multiple of 16 bytes; else only those that say so. `tiling`: one of
    the kernel's `candidate_tilings`, by default the first. Raises `CompileError` for what Triton cannot express, with
    the operator.
    """
    try:
        return _Writer(kernel, target, tiling).write(aligned_inputs)
    except CompileError as error:
        if kernel.origins and not error.location.file:
            origin = kernel.origins[-1]
            raise CompileError(error.stage, error.reason, error.operator or origin.op, origin.location) from error
        raise


class _Writer:
    """One kernel. Implements `expressions.Lines`."""

    def __init__(self, kernel: Kernel, target: Target, tiling: Tiling | None = None) -> None:
        self.kernel, self.target = kernel, target
        self.form: Form = read_form(kernel)
        self.tiling: Tiling = tiling or choose_tiling(self.form, kernel, target)
        if self._reads_rows_from_memory():
            self.form = merge_exponential_sums(self.form)
        self.parameters: dict[str, Parameter] = {p.name: p for p in kernel.parameters}
        self.index_type = "tl.int64" if self._is_large() else "tl.int32"
        self.lines: list[str] = []
        self.indent = "    "
        #: Names by the text they stand for, one table for each enclosing loop.
        self.known: list[dict[str, str]] = [{}]
        self.names = 0
        self.symbols: dict[str, Value] = {name: (name, _NONE) for name in kernel.sizes}
        self.locals: dict[str, Value] = {}
        #: Conditions that always hold, or never.
        self.decided: dict[str, bool] = {}
        self.accumulators: dict[str, Accumulator] = {}
        self.masks: dict[str, Value] = {}
        #: Inner loops that are unrolled: the iteration.
        self.fixed: dict[str, Size] = {}
        self.stored: set[str] = set()
        self.helpers: dict[str, None] = {}
        #: Dimensions in order: an axis each of a tile's shape.
        self.dims: tuple[str, ...] = ()

    def _reads_rows_from_memory(self) -> bool:
        """Whether rows are folded block by block and are gone from the L2 cache when they are read again."""
        if not self.tiling.r_block:
            return False
        length = min((likely(product(axis.extent for axis in nest.axes)) for nest in self.form.nests), default=0)
        rows = min(likely(product(axis.extent for axis in self.form.outer)), RESIDENT_ROWS * self.target.threads)
        item_bytes = min(ITEM_SIZE_BYTES[p.dtype] for p in self.kernel.parameters)
        return length > self.tiling.r_block and 2 * rows * length * item_bytes > self.target.l2_bytes

    def _is_large(self) -> bool:
        """Whether offsets need 64 bits. Blocks may overhang."""
        limit = (1 << 31) - (1 << 16)
        sizes = [bounds(p.numel)[1] for p in self.kernel.parameters]
        sizes.append(bounds(product(axis.extent for axis in self.form.outer))[1])
        sizes += [bounds(product(upper(axis.extent) for axis in nest.axes))[1] for nest in self.form.nests]
        return max(sizes) >= limit

    # -- The function -------------------------------------------------------------------------------------------------

    def write(self, aligned_inputs: bool) -> DeviceKernel:
        kernel = self.kernel
        for parameter in kernel.parameters:
            if parameter.dtype not in NATIVE:
                raise CompileError("generate", f"kernel {kernel.name}: parameter of {parameter.dtype}")
        grid = self._outer()
        if self.form.nests and self.tiling.r_block:
            self._line(f"r = {self._range('RBLOCK', 'r')}")
            if likely(grid) <= EARLY_PROGRAMS * self.target.threads:
                self._load_early()
        for stmt in self.form.row:
            if isinstance(stmt, Nest):
                self._nest(stmt)
            elif isinstance(stmt, Let):
                self._let(stmt)
            elif isinstance(stmt, Accumulator):
                self.accumulators[stmt.name] = stmt
            else:
                self._store(stmt, tuple(dim for dim in self.dims if dim != "r"))
        blocks = [
            (name, number)
            for name, number in (
                ("XBLOCK", self.tiling.x_block),
                ("YBLOCK", self.tiling.y_block),
                ("RBLOCK", self.tiling.r_block),
            )
            if number
        ]
        size_type = "i64" if self.index_type == "tl.int64" else "i32"
        signature = (*(POINTERS[p.dtype] for p in kernel.parameters), *(size_type for _ in kernel.sizes))
        aligned = tuple(place for place, p in enumerate(kernel.parameters) if p.aligned or aligned_inputs)
        return DeviceKernel(
            kernel.name,
            self._module([name for name, _ in blocks]),
            signature,
            aligned,
            tuple(blocks),
            (grid,),
            self.tiling.num_warps,
            self.tiling.num_stages,
            self.target.name,
        )

    def _module(self, blocks: list[str]) -> str:
        body = "\n".join(self.lines)
        header = [f"# {line}" for line in self._origins()]
        header += ["import triton", "import triton.language as tl"]
        if "libdevice." in body:
            header.append("from triton.language.extra import libdevice")
        helpers = "".join(f"\n{HELPERS[name]}" for name in self.helpers)
        arguments = [*self.parameters, *self.kernel.sizes, *(f"{name}: tl.constexpr" for name in blocks)]
        function = f"@triton.jit\ndef {self.kernel.name}({', '.join(arguments)}):\n{body}\n"
        return "\n".join(header) + f"\n{helpers}\n\n{function}"

    def _origins(self) -> list[str]:
        found: dict[str, None] = {}
        for origin in self.kernel.origins:
            place = f" at {origin.location.file}:{origin.location.line}" if origin.location.file else ""
            found.setdefault(f"{origin.op}{place}".replace("\n", " "))
        return list(found)

    def _outer(self) -> Size:
        """Lines for the outer loops' indices; the number of programs."""
        tiling, form = self.tiling, self.form
        flat = [axis for place, axis in enumerate(form.outer) if place != tiling.y_loop]
        program = "tl.program_id(0)"
        if self.index_type == "tl.int64":
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
        self._split("x", _NONE if scalar else frozenset("x"), flat)
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
            text = self._size(blocks)[0]
            number = self.name(rest)
            last = name == "y" and len(flat) == 1
            place = number if last else self.name(f"{number} % {text}")
            size = f"{name.upper()}BLOCK"
            self._line(f"{name} = {place} * {size} + {self._range(size, name)}")
            self._bound(name, name, axis.extent, block)
            self.symbols[axis.name] = (name, frozenset(name))
            rest = f"{number} // {text}"
        others = flat[:-1]
        if others:
            self._split(self.name(rest), _NONE, others)
        return product([*counts, *(axis.extent for axis in others)])

    def _range(self, block: str, dim: str) -> str:
        """Consecutive numbers along dimension `dim` of the tile."""
        text = f"tl.arange(0, {block})"
        if self.index_type == "tl.int64":
            text += ".to(tl.int64)"
        if len(self.dims) < 2:
            return text
        return text + ("[:, None]" if self.dims.index(dim) == 0 else "[None, :]")

    def _bound(self, dim: str, index: str, extent: Size, block: int) -> None:
        """The mask of a dimension, unless all blocks are full."""
        if not isinstance(extent, int) or extent % block:
            self.masks[dim] = (self.name(f"{index} < {self._size(extent)[0]}"), frozenset(dim))

    def _split(self, index: str, dims: frozenset[str], axes: list[Axis]) -> None:
        """The indices of `axes`, row by row, as parts of one index over all of them."""
        rest = index
        for place in range(len(axes) - 1, -1, -1):
            axis = axes[place]
            extent = upper(axis.extent)
            if extent == 1 or place == 0:
                text = "0" if extent == 1 else rest
            else:
                text = self.name(f"{rest} % {self._size(extent)[0]}")
                rest = self.name(f"{rest} // {self._size(extent)[0]}")
            self.symbols[axis.name] = (text, dims)

    def _let(self, stmt: Let) -> None:
        decided = self._decided(stmt.value)
        if decided is not None:
            self.decided[stmt.name] = decided
        else:
            self.decided.pop(stmt.name, None)
            self.locals[stmt.name] = self.value(stmt.value)

    # -- Inner nests --------------------------------------------------------------------------------------------------

    def _nest(self, nest: Nest) -> None:
        length = product(upper(axis.extent) for axis in nest.axes)
        folded = [stmt for stmt in nest.body if isinstance(stmt, Accumulate)]
        if length == 0:
            for stmt in folded:
                op, dtype = self._fold_type(stmt)
                text = "0" if op.startswith("arg") else typed_identity(op, dtype)
                self.locals[stmt.name] = (self.name(typed(0, "int64") if text == "0" else text), _NONE)
            return
        if not self.tiling.r_block:
            self._unroll(nest, folded)
        elif isinstance(length, int) and length <= self.tiling.r_block:
            self._enter(nest, "r", length)
            self._statements(nest, None)
        else:
            accumulators = {stmt.name: self._start(stmt) for stmt in folded}
            for both in (stmt for stmt in nest.body if isinstance(stmt, Rescaled)):
                shape = self._shape(self.dims)
                self._line(f"{both.maximum} = tl.full({shape}, {literal(float('-inf'), 'float32')}, tl.float32)")
                self._line(f"{both.total} = tl.full({shape}, 0.0, tl.float32)")
            before, indent, depth = dict(self.locals), self.indent, len(self.known)
            inner = nest
            if has_row_values(nest):
                for axis in nest.axes[:-1]:
                    self._open_loop(axis.name, f"range(0, {self._size(axis.extent)[0]})")
                    index = axis.name if self.index_type == "tl.int32" else self.name(f"{axis.name}.to(tl.int64)")
                    self.symbols[axis.name] = (index, _NONE)
                inner, length = Nest(nest.axes[-1:], nest.body), nest.axes[-1].extent
            self._open_loop("start", f"range(0, {self._size(length)[0]}, RBLOCK)")
            self._enter(inner, self.name("start + r"), length)
            self._statements(inner, accumulators)
            self.locals, self.indent = before, indent
            del self.known[depth:]
            for done in nest.body:
                if isinstance(done, Accumulate):
                    self._finish(done, accumulators[done.name])
                elif isinstance(done, Rescaled):
                    self._finish_rescaled(done)
        self.masks.pop("r", None)

    def _open_loop(self, name: str, values: str) -> None:
        self._line(f"for {name} in {values}:")
        self.indent += "    "
        self.known.append({})

    def _unroll(self, nest: Nest, folded: list[Accumulate]) -> None:
        """The nest's iterations one by one; every element of the tile folds its own."""
        totals: dict[str, tuple[str, str, frozenset[str]]] = {}
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

    def _fold_one(
        self, stmt: Accumulate, total: tuple[str, str, frozenset[str]] | None
    ) -> tuple[str, str, frozenset[str]]:
        """`total` (value, position, dimensions) with one more element; None: the first."""
        op, dtype = self._fold_type(stmt)
        value, dims = self.value(stmt.value)
        value, position = cast(self, value, stmt.value.dtype, dtype), ""
        if op.startswith("arg"):
            assert stmt.position is not None  # verified: argmax and argmin have one
            text, varies = self._size(stmt.position)
            position, dims = self.name(f"tl.full([], {text}, {self.index_type})"), dims | varies
        if total is None:
            return value, position, dims
        if position:
            call = f"{self._helper(op)}({total[0]}, {total[1]}, {value}, {position})"
            value, position = self.block((f"{{0}}, {{1}} = {call}",), "{0} {1}").split()
        else:
            value = operation(self, COMBINE[op], dtype, dtype, (total[0], value))
        return value, position, total[2] | dims

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
                self.masks["r"] = (text, dims | varies | (known[1] if known else _NONE))

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

    # -- Reductions ---------------------------------------------------------------------------------------------------

    def _fold_type(self, stmt: Accumulate) -> tuple[str, str]:
        """The reduction and the type its values are folded in."""
        accumulator = self.accumulators[stmt.name]
        op, dtype = accumulator.op, accumulator.dtype
        if op in ("any", "all") and dtype != "bool":
            raise CompileError("generate", f"reduction {op} of {dtype}", op)
        if dtype in HALF:
            return op, "float32"
        if dtype == "bool" and op not in ("any", "all"):
            return {"max": "any", "min": "all", "sum": "any", "prod": "all"}.get(op, op), (
                "int32" if op.startswith("arg") else dtype
            )
        if op in ("prod", "max", "min", "argmax", "argmin", "sum") and dtype in ("int8", "int16", "uint8", "uint16"):
            return op, "int32"
        return op, dtype

    def _operand(self, stmt: Accumulate, dtype: str) -> str:
        """The value to fold, over the whole tile."""
        text, dims = self.value(stmt.value)
        text = cast(self, text, stmt.value.dtype, dtype)
        return self._widen((text, dims), self.dims)

    def _position(self, stmt: Accumulate) -> str:
        assert stmt.position is not None  # verified: argmax and argmin have one
        text, dims = self._size(stmt.position)
        if not dims:
            text = self.name(f"tl.full([], {text}, {self.index_type})")
        return self._widen((text, dims), self.dims)

    def _fold_row(self, stmt: Accumulate) -> None:
        """A fold of a tile that holds the whole row."""
        op, dtype = self._fold_type(stmt)
        value = self._operand(stmt, dtype)
        mask = self.masks.get("r")
        if mask is not None:
            start = self._literal_of(identity(op, dtype), dtype)
            value = self.name(f"tl.where({mask[0]}, {value}, {start})")
        position = ""
        if op.startswith("arg"):
            position = self._position(stmt)
            if mask is not None:
                position = self.name(f"tl.where({mask[0]}, {position}, {self._last()})")
        self._result(stmt, op, dtype, value, position)

    def _start(self, stmt: Accumulate) -> tuple[str, ...]:
        """Accumulators of one tile, before a loop over blocks."""
        op, dtype = self._fold_type(stmt)
        shape = self._shape(self.dims)
        names = [stmt.name]
        self._line(f"{stmt.name} = tl.full({shape}, {identity(op, dtype)}, {TYPES[dtype]})")
        if op.startswith("arg"):
            names.append(f"{stmt.name}_at")
            self._line(f"{names[1]} = tl.full({shape}, {self._last()}, {self.index_type})")
        return tuple(names)

    def _last(self) -> int:
        """A position behind all others."""
        return (1 << 63) - 1 if self.index_type == "tl.int64" else (1 << 31) - 1

    def _fold_block(self, stmt: Accumulate, names: tuple[str, ...]) -> None:
        op, dtype = self._fold_type(stmt)
        value = self._operand(stmt, dtype)
        mask = self.masks.get("r")
        if op.startswith("arg"):
            position = self._position(stmt)
            helper = self._helper(op)
            parts = self.block((f"{{0}}, {{1}} = {helper}({names[0]}, {names[1]}, {value}, {position})",), "{0} {1}")
            folded = parts.split()
        else:
            folded = [operation(self, COMBINE[op], dtype, dtype, (names[0], value))]
        for name, new in zip(names, folded):
            self._line(f"{name} = {new}" if mask is None else f"{name} = tl.where({mask[0]}, {new}, {name})")

    def _fold_rescaled(self, stmt: Rescaled) -> None:
        """One more block; where all so far is -inf, the shift is 0, as -inf less -inf would be NaN."""
        value = self._widen(self.value(stmt.value), self.dims)
        mask = self.masks.get("r")
        if mask is not None:
            value = self.name(f'tl.where({mask[0]}, {value}, float("-inf"))')
        top = operation(self, "maximum", "float32", "float32", (stmt.maximum, value))
        shift = self.name(f'tl.where({top} == float("-inf"), 0.0, {top})')
        scale = self.name(f"libdevice.exp({self.name(f'{stmt.maximum} - {shift}')})")
        power = self.name(f"libdevice.exp({self.name(f'{value} - {shift}')})")
        self._line(f"{stmt.total} = {self.name(f'{stmt.total} * {scale}')} + {power}")
        self._line(f"{stmt.maximum} = {top}")

    def _finish_rescaled(self, stmt: Rescaled) -> None:
        axis = self.dims.index("r")
        suffix, rows = "[:, None]" if axis else "", frozenset(self.dims) - {"r"}
        top = self.name(f"tl.reduce({stmt.maximum}, {axis}, {self._helper('max')}){suffix}")
        scale = self.name(f"libdevice.exp({self.name(f'{stmt.maximum} - {top}')})")
        total = self.name(f"tl.sum({self.name(f'{stmt.total} * {scale}')}, {axis}){suffix}")
        self.locals[stmt.maximum], self.locals[stmt.total] = (top, rows), (total, rows)

    def _finish(self, stmt: Accumulate, names: tuple[str, ...]) -> None:
        op, dtype = self._fold_type(stmt)
        self._result(stmt, op, dtype, names[0], names[1] if len(names) > 1 else "")

    def _result(self, stmt: Accumulate, op: str, dtype: str, value: str, position: str) -> None:
        """Fold `value` along r: the row's value of the accumulator."""
        axis = self.dims.index("r")
        suffix = "[:, None]" if axis else ""
        accumulator = self.accumulators[stmt.name]
        rows = frozenset(self.dims) - {"r"}
        if op.startswith("arg"):
            call = f"{{0}}, {{1}} = tl.reduce(({value}, {position}), {axis}, {self._helper(op)})"
            text = self.block((call,), "{1}")
            self.locals[stmt.name] = (self.name(f"{text}{suffix}.to(tl.int64)"), rows)
            return
        if op in ("any", "all"):
            function = "tl.max" if op == "any" else "tl.min"
            text = self.name(f"{function}({self.name(f'{value}.to(tl.int32)')}, {axis}){suffix}")
            self.locals[stmt.name] = (self.name(f"{text} != 0"), rows)
            return
        if op == "sum":
            call = f"tl.sum({value}, {axis})"
        elif op == "prod" or dtype in ("float32", "float64"):
            call = f"tl.reduce({value}, {axis}, {self._helper(op)})"
        else:
            call = f"tl.{op}({value}, {axis})"
        text = self.name(f"{call}{suffix}")
        self.locals[stmt.name] = (cast(self, text, dtype, accumulator.dtype), rows)

    def _helper(self, op: str) -> str:
        names = {
            "max": "maximum_of", "min": "minimum_of", "prod": "product_of", "argmax": "first_maximum",
            "argmin": "first_minimum",
        }  # fmt: skip
        self.helpers.setdefault(names[op])
        return names[op]

    def _literal_of(self, text: str, dtype: str) -> str:
        return self.name(f"tl.full([], {text}, {TYPES[dtype]})") if dtype == "bool" else text

    # -- Memory -------------------------------------------------------------------------------------------------------

    def _bind(self, indirect: tuple[tuple[str, Expr], ...]) -> None:
        """Symbols of an index that stand for computed integers."""
        for name, bound in indirect:
            text, dims = self.value(bound)
            if TYPES[bound.dtype] != self.index_type:
                text = self.name(f"{text}.to({self.index_type})")
            self.symbols[name] = (text, dims)

    def _load(self, load: Load) -> Value:
        if load.buffer in self.stored:
            raise CompileError("generate", f"kernel {self.kernel.name} loads {load.buffer} after storing to it")
        decided = self._decided(load.mask) if load.mask is not None else True
        if decided is False:
            return self.name(typed(load.other, load.dtype)), _NONE
        self._bind(load.indirect)
        offset, dims = self._size(load.index[0])
        conditions = [mask[0] for dim, mask in self.masks.items() if dim in dims and mask[1] <= dims]
        wider = dims
        for dim, mask in self.masks.items():
            if dim in dims and not mask[1] <= dims:
                conditions.append(mask[0])
                wider |= mask[1]
        other = ""
        if load.mask is not None and decided is None:
            text, varies = self.value(load.mask)
            conditions.append(text)
            wider |= varies
            other = f", other={literal(load.other, load.dtype)}"
        if wider != dims:
            order = tuple(dim for dim in self.dims if dim in wider)
            offset = self._widen_offset((offset, dims), order)
        pointer = load.buffer if offset == "0" else f"{load.buffer} + {_operand_text(offset)}"
        mask_text = f", mask={self._all(conditions)}" if conditions else ""
        text = f"tl.load({pointer}{mask_text}{other})"
        if load.dtype == "bool":
            text += ".to(tl.int1)"
        return self.name(text), wider

    def _store(self, stmt: Store, dims: tuple[str, ...]) -> None:
        dtype = self.parameters[stmt.buffer].dtype
        value, _ = self.value(stmt.value)
        if isinstance(stmt.value, Constant):
            value = self.name(typed(stmt.value.value, stmt.value.dtype))
        self._bind(stmt.indirect)
        offset = self._widen_offset(self._size(stmt.index[0]), dims)
        pointer = stmt.buffer if offset == "0" else f"{stmt.buffer} + {_operand_text(offset)}"
        conditions = [mask[0] for dim, mask in self.masks.items() if dim in dims]
        mask = f", mask={self._all(conditions)}" if conditions else ""
        if stmt.mode == "add":
            too_old = dtype == "bfloat16" and int(self.target.name.removeprefix("sm_") or 0) < 90
            if dtype not in ATOMIC or too_old:
                raise CompileError("generate", f"no atomic addition of {dtype} on {self.target.name}")
            self._line(f'tl.atomic_add({pointer}, {value}{mask}, sem="relaxed")')
        else:
            self._line(f"tl.store({pointer}, {value}{mask})")
        self.stored.add(stmt.buffer)

    def _all(self, conditions: list[str]) -> str:
        text = conditions[0]
        for other in conditions[1:]:
            text = self.name(f"{text} & {other}")
        return text

    def _shape(self, dims: tuple[str, ...]) -> str:
        """The shape of a tile that varies along `dims`."""
        return "[" + ", ".join(f"{dim.upper()}BLOCK" if dim in dims else "1" for dim in self.dims) + "]"

    def _widen(self, value: Value, dims: tuple[str, ...]) -> str:
        """`value` over all of `dims`."""
        text, varies = value
        if varies >= set(dims):
            return text
        return self.name(f"tl.broadcast_to({text}, {self._shape(dims)})")

    def _widen_offset(self, value: Value, dims: tuple[str, ...]) -> str:
        """The same for an offset, which may be a number."""
        text, varies = value
        if varies >= set(dims):
            return text
        zeros = self.name(f"tl.full({self._shape(dims)}, 0, {self.index_type})")
        return zeros if text == "0" else self.name(f"{zeros} + {_operand_text(text)}")

    # -- Expressions --------------------------------------------------------------------------------------------------

    def value(self, expr: Expr) -> Value:
        """The name that holds `expr`."""
        if isinstance(expr, Constant):
            return self.name(typed(expr.value, expr.dtype)), _NONE
        if isinstance(expr, Index):
            text, dims = self._position_value(expr.value)
            if text.lstrip("-").isdigit():
                return self.name(typed(int(text), "int64")), _NONE
            return self.name(f"{_operand_text(text)}.to(tl.int64)"), dims
        decided = self._decided(expr)
        if decided is not None:
            return self.name(typed(decided, "bool")), _NONE
        if isinstance(expr, Local):
            return self.locals[expr.name]
        if isinstance(expr, Load):
            return self._load(expr)
        if expr.op in COMPARISONS:
            found = self._compared_indices(expr)
            if found is not None:
                return found
        if expr.op in ("and", "or") and expr.dtype == "bool":
            for arg, other in (expr.args, expr.args[::-1]):
                decided = self._decided(arg)
                if decided is not None:
                    return self.value(other if decided == (expr.op == "and") else Constant(decided, "bool"))
        dtype = expr.args[-1].dtype
        varying = [place for place, arg in enumerate(expr.args) if not isinstance(arg, Constant)]
        if expr.op == "where":
            varying = [place for place in varying if place > 0]
        args, dims = [], _NONE
        for place, arg in enumerate(expr.args):
            if isinstance(arg, Constant) and varying and takes_literal(expr.op, dtype, place):
                args.append(literal(arg.value, arg.dtype))
                continue
            text, varies = self.value(arg)
            args.append(text)
            dims |= varies
        return operation(self, expr.op, dtype, expr.dtype, tuple(args)), dims

    def _decided(self, expr: Expr) -> bool | None:
        """What a condition on positions always is, by the bounds of the loops."""
        if isinstance(expr, Constant) and expr.dtype == "bool":
            return bool(expr.value)
        if isinstance(expr, Local):
            return self.decided.get(expr.name)
        if not isinstance(expr, Compute) or expr.dtype != "bool":
            return None
        if expr.op in ("and", "or"):
            known = {self._decided(arg) for arg in expr.args}
            decisive = expr.op == "or"
            return decisive if decisive in known else not decisive if known == {not decisive} else None
        if expr.op not in _ORDER:
            return None
        limits: list[tuple[int, int]] = []
        for arg in expr.args:
            if isinstance(arg, Index):
                limits.append(bounds(substitute(arg.value, self.fixed) if self.fixed else arg.value))
            elif isinstance(arg, Constant) and arg.dtype == "int64":
                limits.append((int(arg.value), int(arg.value)))
            else:
                return None
        never, always = _ORDER[expr.op](*limits[0], *limits[1])
        return True if always else False if never else None

    def _compared_indices(self, expr: Compute) -> Value | None:
        """Positions are compared as the integers they are made of: 64 bits would take twice the instructions."""
        texts, dims = [], _NONE
        for arg in expr.args:
            if isinstance(arg, Index):
                text, varies = self._position_value(arg.value)
                texts.append(_operand_text(text))
                dims |= varies
            elif isinstance(arg, Constant) and abs(int(arg.value)) < 1 << 31:
                texts.append(literal(arg.value, "int64"))
            else:
                return None
        if not any(isinstance(arg, Index) for arg in expr.args):
            return None
        return self.name(f"{texts[0]} {COMPARISONS[expr.op]} {texts[1]}"), dims

    def _position_value(self, value: Size) -> Value:
        """A position as a value: unlike an offset it may be larger than all memory (`arange` in large steps)."""
        if self.index_type == "tl.int64" or all(_is_narrow(part) for part in _parts(value)):
            return self._size(value)
        saved = dict(self.symbols)
        for name in symbols(value):
            text, dims = self.symbols[name]
            if name not in self.fixed:
                self.symbols[name] = (self.name(f"{_operand_text(text)}.to(tl.int64)"), dims)
        found = self._size(value)
        self.symbols = saved
        return found

    def _size(self, value: Size) -> Value:
        """An index expression as text. Divisions round to zero in Triton: where a dividend may be negative they are
        put right."""
        if self.fixed:
            value = substitute(value, self.fixed)
        if isinstance(value, int):
            return str(value), _NONE
        if isinstance(value, Symbol):
            found = self.symbols.get(value.name)
            if found is None:
                raise CompileError("generate", f"kernel {self.kernel.name}: unknown index {value.name}")
            return found
        if isinstance(value, Sum):
            parts: list[str] = []
            dims = _NONE
            for factor, atom in value.terms:
                text, varies = self._size(atom)
                if text == "0":
                    continue
                dims |= varies
                part = _operand_text(text) if factor in (1, -1) else f"{abs(factor)} * {_operand_text(text)}"
                sign = "-" if factor < 0 else "+"
                parts.append(part if not parts and factor > 0 else f"{sign} {part}")
            if value.constant or not parts:
                sign = "-" if value.constant < 0 else "+"
                parts.append(str(value.constant) if not parts else f"{sign} {abs(value.constant)}")
            return " ".join(parts), dims
        if isinstance(value, Product):
            texts = [self._size(factor) for factor in value.factors]
            if any(text == "0" for text, _ in texts):
                return "0", _NONE
            return " * ".join(_operand_text(text) for text, _ in texts), _NONE.union(*(dims for _, dims in texts))
        if isinstance(value, (FloorDiv, Mod)):
            (text, dims), (divisor, varies) = self._size(value.value), self._size(value.divisor)
            text = _operand_text(text)
            divisor = _operand_text(divisor)
            if bounds(value.value)[0] < 0:
                # (v - (v < 0) * (d - 1)) rounded to zero is v // d rounded down.
                text = self.name(text) if not text.isidentifier() else text
                quotient = f"({text} - tl.where({text} < 0, {divisor} - 1, 0)) // {divisor}"
                if isinstance(value, FloorDiv):
                    return self.name(quotient), dims | varies
                return self.name(f"{text} - {divisor} * {self.name(quotient)}"), dims | varies
            return self.name(f"{text} {'//' if isinstance(value, FloorDiv) else '%'} {divisor}"), dims | varies
        if isinstance(value, (Min, Max)):
            (left, dims), (right, varies) = self._size(value.left), self._size(value.right)
            function = "tl.minimum" if isinstance(value, Min) else "tl.maximum"
            return self.name(f"{function}({left}, {right})"), dims | varies
        raise TypeError(f"not a size: {value!r}")

    # -- Lines --------------------------------------------------------------------------------------------------------

    def _line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def name(self, text: str) -> str:
        """A name for `text`, which has no effects: the same one wherever it is visible already."""
        if text.isidentifier():
            return text
        for table in reversed(self.known):
            found = table.get(text)
            if found is not None:
                return found
        name = self._fresh()
        self._line(f"{name} = {text}")
        self.known[-1][text] = name
        return name

    def block(self, lines: tuple[str, ...], result: str) -> str:
        names: list[str] = []
        while any(f"{{{len(names)}}}" in line for line in lines):
            names.append(self._fresh())
        for line in lines:
            self._line(line.format(*names))
        return result.format(*names)

    def _fresh(self) -> str:
        self.names += 1
        return f"t{self.names - 1}"


#: (never, always) true of a value in [a, b] and another in [c, d].
_ORDER: dict[str, Callable[[int, int, int, int], tuple[bool, bool]]] = {
    "lt": lambda a, b, c, d: (a >= d, b < c),
    "le": lambda a, b, c, d: (a > d, b <= c),
    "gt": lambda a, b, c, d: (b <= c, a > d),
    "ge": lambda a, b, c, d: (b < c, a >= d),
    "eq": lambda a, b, c, d: (b < c or a > d, a == b == c == d),
    "ne": lambda a, b, c, d: (a == b == c == d, b < c or a > d),
}


def _parts(value: Size) -> Iterator[Size]:
    """`value` and all that it is made of."""
    yield value
    if isinstance(value, Sum):
        for factor, atom in value.terms:
            yield from _parts(atom)
            yield mul(atom, factor)
    elif isinstance(value, Product):
        for atom in value.factors:
            yield from _parts(atom)
    elif isinstance(value, (FloorDiv, Mod)):
        yield from _parts(value.value)
        yield from _parts(value.divisor)
    elif isinstance(value, (Min, Max)):
        yield from _parts(value.left)
        yield from _parts(value.right)


def _is_narrow(value: Size) -> bool:
    low, high = bounds(value)
    return -(1 << 31) <= low and high < 1 << 31


def typed_identity(op: str, dtype: str) -> str:
    return f"tl.full([], {identity(op, dtype)}, {TYPES[dtype]})"


def _operand_text(text: str) -> str:
    """`text` as an operand: in parentheses if it is more than a name or a number."""
    return text if text.isidentifier() or text.isdigit() else f"({text})"
