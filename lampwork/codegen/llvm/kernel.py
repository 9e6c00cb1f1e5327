"""Kernel bodies: statements and expressions as one LLVM function.

A vector loop runs its body once with `lanes` iterations side by side. A value is uniform (one lane) or varying; a
statement under a condition that varies runs under a mask. What cannot run side by side (`Unvectorizable`) is written
again as a scalar loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from math import gcd
from typing import TYPE_CHECKING

from lampwork.codegen.llvm import memory, reduction, tiles
from lampwork.codegen.llvm.arithmetic import Arithmetic
from lampwork.codegen.llvm.builder import Builder, Value
from lampwork.codegen.llvm.lanes import VectorPlan, plan_vector_loop
from lampwork.codegen.llvm.sizes import SizeEmitter, Unvectorizable
from lampwork.codegen.llvm.types import MEMORY
from lampwork.errors import CompileError
from lampwork.ir.dtype import INTEGRAL, ITEM_SIZE_BYTES, SIGNED
from lampwork.ir.loops import (
    Accumulate,
    Accumulator,
    Compute,
    Constant,
    Expr,
    If,
    Index,
    Let,
    Load,
    Local,
    Loop,
    Scratch,
    Stmt,
    Store,
)  # fmt: skip
from lampwork.ir.record import record
from lampwork.ir.size import Size, Symbol

if TYPE_CHECKING:
    from lampwork.codegen.llvm.module import ModuleEmitter


@record(frozen=False)
class Memory:
    """A buffer as this function sees it: a pointer and what is known of it.

    `frozen`: nothing writes it while the kernel runs. `stream`: large enough, and not read again soon, that stores
    should bypass the caches. `far`: larger than the last cache, so that loads wait for memory.
    """

    pointer: Value
    dtype: str
    aligned: bool
    frozen: bool
    stream: bool = False
    far: bool = False

    @property
    def item_bytes(self) -> int:
        return ITEM_SIZE_BYTES[self.dtype]


@record(frozen=False)
class Context:
    """Names in scope. Copied where a scope opens."""

    values: dict[str, tuple[Value, str]] = field(default_factory=dict)  # Lets: value and dtype
    buffers: dict[str, Memory] = field(default_factory=dict)
    accumulators: dict[str, reduction.Slots] = field(default_factory=dict)


class FunctionEmitter:
    """Emits statements into one function. `parallel` handles parallel loops, where they are allowed."""

    #: Stack memory a function may take for scratch buffers; OpenMP threads have at least 2 MiB of stack.
    STACK_BYTES = 256 << 10

    def __init__(self, module: ModuleEmitter, parallel: Callable[[FunctionEmitter, Loop], None] | None) -> None:
        self.module = module
        self.build = Builder(module.declarations)
        self.sizes = SizeEmitter(self.build)
        self.arithmetic = Arithmetic(self.build, module.externals, module.native_half, module.scales)
        self.context = Context()
        self.parallel = parallel
        self.in_parallel = parallel is None
        self.mask: Value | None = None
        self.mask_is_tail = False  # then at least one lane is on, so uniform loads need no mask
        self.streams = False
        self.tiled: dict[tuple[str, Size], tuple[str, Size]] = {}  # see tiles.py
        self._shared: dict[int, Value] = {}
        self._heap: list[Value] = []
        self._spare: dict[int, Value] = {}
        self._stack_bytes = 0

    def memory(self, pointer: Value, dtype: str) -> Memory:
        """Memory of this function's own."""
        return Memory(pointer, dtype, True, False)

    @property
    def lanes(self) -> int:
        return self.sizes.lanes

    # -- statements ---------------------------------------------------------------------------------------------------

    def body(self, statements: tuple[Stmt, ...]) -> None:
        """Emits statements in a scope of their own."""
        outer = self.context
        self.context = Context(dict(outer.values), dict(outer.buffers), dict(outer.accumulators))
        symbols = dict(self.sizes.symbols)
        declared: list[reduction.Slots] = []
        for statement in statements:
            self._shared.clear()
            if isinstance(statement, Accumulator):
                slots = reduction.declare(self, statement, statements)
                self.context.accumulators[statement.name] = slots
                declared.append(slots)
                continue
            self.statement(statement)
            for slots in declared:
                if slots.partial:
                    reduction.combine_lanes(self, slots)
        self.context = outer
        self.sizes.symbols = symbols

    def statement(self, statement: Stmt) -> None:
        if isinstance(statement, Let):
            self.let(statement)
        elif isinstance(statement, Store):
            memory.store(self, statement)
        elif isinstance(statement, Loop):
            self.loop(statement)
        elif isinstance(statement, Accumulate):
            slots = self.context.accumulators.get(statement.name)
            if slots is None:
                raise CompileError("generate", f"accumulator {statement.name} is not declared")
            reduction.accumulate(self, slots, statement)
        elif isinstance(statement, If):
            self.conditional(statement)
        elif isinstance(statement, Scratch):
            self.scratch(statement)
        else:
            raise CompileError("generate", f"unknown statement {type(statement).__name__}")

    def let(self, statement: Let) -> None:
        value = self.expression(statement.value)
        dtype = statement.value.dtype
        self.context.values[statement.name] = (value, dtype)
        if dtype in INTEGRAL:
            self.sizes.symbols[statement.name] = self.index_value(value, dtype)

    def index_value(self, value: Value, dtype: str) -> Value:
        return self.build.convert("sext" if dtype in SIGNED else "zext", value, "i64")

    def scratch(self, statement: Scratch) -> None:
        if self.lanes > 1:
            raise Unvectorizable("scratch memory belongs to one iteration")
        bytes = statement.numel * ITEM_SIZE_BYTES[statement.dtype]
        if self._stack_bytes + bytes <= self.STACK_BYTES:
            self._stack_bytes += bytes
            name = self.build.allocate(f"[{statement.numel} x {MEMORY[statement.dtype]}]", 64)
            pointer = Value(name, "ptr")
        else:
            pointer = self.heap(bytes)
        self.context.buffers[statement.name] = self.memory(pointer, statement.dtype)

    def spare(self, bytes: int) -> Value:
        """Readable memory of no particular content, for loads that are switched off."""
        slot = self._spare.get(bytes)
        if slot is None:
            slot = self._spare[bytes] = Value(self.build.allocate(f"[{bytes} x i8]", 64), "ptr")
        return slot

    def heap(self, bytes: int) -> Value:
        """Memory that lives until the function returns. Taken at entry, once."""
        build = self.build
        symbol = self.module.externals.address(build, "c:aligned_alloc")
        name = build.fresh()
        build.effect(f"{name} = call noalias ptr {symbol.text}(i64 64, i64 {-(-bytes // 64) * 64})", depth=0)
        pointer = Value(name, "ptr")
        self._heap.append(pointer)
        return pointer

    def finish(self, signature: str, attributes: str) -> str:
        """The text of the function."""
        if self.streams:
            self.build.declare("@llvm.x86.sse.sfence", "declare void @llvm.x86.sse.sfence()")
            self.build.effect("call void @llvm.x86.sse.sfence()")
        for pointer in self._heap:
            self.build.effect(f"call void {self.module.externals.address(self.build, 'c:free').text}({pointer})")
        return self.build.function(signature, attributes)

    def conditional(self, statement: If) -> None:
        condition = self.expression(statement.condition)
        if condition.lanes == 1:
            self.build.open_block()
            self.body(statement.body)
            self.build.close_block(condition)
            return
        with self.masked(condition, tail=False):
            self.body(statement.body)

    @contextmanager
    def masked(self, mask: Value, tail: bool) -> Iterator[None]:
        before = self.mask, self.mask_is_tail
        self.mask = mask if self.mask is None else self.build.binary("and", self.mask, mask)
        self.mask_is_tail = tail and (before[0] is None or before[1])
        yield
        self.mask, self.mask_is_tail = before

    # -- loops --------------------------------------------------------------------------------------------------------

    def loop(self, loop: Loop) -> None:
        if loop.kind == "parallel" and self.parallel is not None and self.lanes == 1 and self.build.depth == 0:
            self.parallel(self, loop)
        elif loop.kind == "vector" and self.lanes == 1 and self.mask is None:
            self.vector_loop(loop)
        elif loop.kind == "unroll" and isinstance(loop.axis.extent, int):
            for i in range(loop.axis.extent):
                self.sizes.symbols[loop.axis.name] = self.build.integer(i)
                self.body(loop.body)
        else:
            loads = tiles.transposed_loads(self, loop) if self.lanes == 1 and self.mask is None else []
            if loads:
                self.tiled = tiles.fill_tiles(self, loop, loads)
                self.serial_loop(loop)
                self.tiled = {}
            else:
                self.serial_loop(loop)

    def serial_loop(self, loop: Loop) -> None:
        self.counted(loop, self.build.integer(0), self.sizes.scalar(loop.axis.extent), 1)

    def counted(self, loop: Loop, start: Value, end: Value, step: int) -> None:
        """The body for `axis = start, start + step, ... < end` (a multiple of `step` apart)."""
        static = start.is_constant and end.is_constant
        if static:
            trips = (int(end.text) - int(start.text)) // step
            if trips <= 0:
                return
            if trips == 1:
                self.sizes.symbols[loop.axis.name] = start
                self.body(loop.body)
                return
        counter = self.build.open_loop(runs=static)
        self.sizes.symbols[loop.axis.name] = counter
        self.body(loop.body)
        self.build.close_loop(counter, start, end, step)

    def vector_loop(self, loop: Loop) -> None:
        plan = plan_vector_loop(loop, self)
        if plan.lanes == 1:
            self.serial_loop(loop)
            return
        depth = self.build.depth
        lines = len(self.build.levels[-1].lines)
        memo = dict(self.build.levels[-1].memo)
        label = self.build.levels[-1].label
        outer, symbols = self.context, dict(self.sizes.symbols)
        try:
            self.lockstep(loop, plan)
        except Unvectorizable:
            # Drop what was written at this level and below; what was hoisted further out is pure and unused.
            del self.build.levels[depth + 1 :]
            level = self.build.levels[-1]
            del level.lines[lines:]
            level.memo, level.label = memo, label
            self.context, self.sizes.symbols = outer, symbols
            for slots in outer.accumulators.values():
                slots.partial.clear()
            self.sizes.lanes, self.sizes.lane_axis, self.mask, self.mask_is_tail = 1, None, None, False
            self.serial_loop(loop)

    def lockstep(self, loop: Loop, plan: VectorPlan) -> None:
        """A main loop of full vectors, then the rest: a narrower or masked vector, or scalar iterations."""
        build = self.build
        axis, extent = loop.axis.name, self.sizes.scalar(loop.axis.extent)
        lanes = plan.lanes
        if extent.is_constant:
            total = int(extent.text)
            main = total - total % lanes
            with self.in_lanes(axis, lanes, lanes):
                self.counted(loop, build.integer(0), build.integer(main), lanes)
            rest = total - main
            if rest == 0:
                return
            if not plan.masks:
                while rest:
                    piece = 1 << (rest.bit_length() - 1)
                    if piece < plan.least:
                        break
                    with self.in_lanes(axis, piece, main):
                        self.counted(loop, build.integer(main), build.integer(main + piece), piece)
                    main, rest = main + piece, rest - piece
                self.counted(loop, build.integer(main), extent, 1)
                return
            width = 1 << (rest - 1).bit_length()
            with self.in_lanes(axis, width, gcd(main, width) if main else width):
                if rest == width:
                    self.counted(loop, build.integer(main), build.integer(main + width), width)
                    return
                bits = ", ".join(f"i1 {'true' if lane < rest else 'false'}" for lane in range(width))
                with self.masked(Value(f"<{bits}>", "i1", width), tail=True):
                    self.counted(loop, build.integer(main), build.integer(main + width), width)
            return
        rest_value = build.binary("and", extent, build.integer(lanes - 1))
        main_value = build.binary("sub", extent, rest_value, " nsw")
        with self.in_lanes(axis, lanes, lanes):
            self.counted(loop, build.integer(0), main_value, lanes)
        if not plan.masks:
            self.counted(loop, main_value, extent, 1)
            return
        build.open_block()
        with self.in_lanes(axis, lanes, lanes):
            self.sizes.symbols[axis] = main_value
            narrow = build.convert("trunc", rest_value, "i32")
            with self.masked(build.compare("icmp ugt", narrow, build.iota(lanes, "i32")), tail=True):
                self.body(loop.body)
        build.close_block(build.compare("icmp ne", rest_value, build.integer(0)))

    @contextmanager
    def in_lanes(self, axis: str, lanes: int, multiple: int) -> Iterator[None]:
        sizes = self.sizes
        sizes.lane_axis, sizes.lanes, sizes.lane_multiple = axis if lanes > 1 else None, lanes, multiple
        yield
        sizes.lane_axis, sizes.lanes, sizes.lane_multiple = None, 1, 1

    # -- expressions --------------------------------------------------------------------------------------------------

    def expression(self, expr: Expr) -> Value:
        known = self._shared.get(id(expr))
        if known is None:
            known = self._shared[id(expr)] = self._expression(expr)
        return known

    def _expression(self, expr: Expr) -> Value:
        if isinstance(expr, Compute):
            operands = tuple(self.expression(arg) for arg in expr.args)
            return self.arithmetic.operation(expr.op, expr.args[-1].dtype, expr.dtype, operands)
        if isinstance(expr, Load):
            return memory.load(self, expr)
        if isinstance(expr, Local):
            return self.local(expr)
        if isinstance(expr, Constant):
            return self.arithmetic.constant(expr.value, expr.dtype)
        if isinstance(expr, Index):
            return self.arithmetic.cast(self.sizes.value(expr.value), "int64", expr.dtype)
        raise CompileError("generate", f"unknown expression {type(expr).__name__}")

    def local(self, expr: Local) -> Value:
        slots = self.context.accumulators.get(expr.name)
        if slots is not None:
            return reduction.read(self, slots)
        known = self.context.values.get(expr.name)
        if known is not None:
            return known[0]
        if expr.name in self.sizes.symbols:  # a loop index or size used as a value
            return self.sizes.value(Symbol(expr.name))
        raise CompileError("generate", f"{expr.name} has no value here")

    @contextmanager
    def bound(self, indirect: tuple[tuple[str, Expr], ...]) -> Iterator[None]:
        """Binds symbols of an index to integer expressions."""
        before = dict(self.sizes.symbols) if indirect else None
        for name, expr in indirect:
            self.sizes.symbols[name] = self.index_value(self.expression(expr), expr.dtype)
        yield
        if before is not None:
            self.sizes.symbols = before
