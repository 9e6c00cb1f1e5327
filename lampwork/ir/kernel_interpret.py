"""The meaning of kernels and programs, slowly and obviously: one Python number at a time, no vectors, no threads.

Memory is a list of Python numbers per buffer (`Memory`), flat, in elements from the buffer's first. Values are
rounded to
their type after every operation, so results agree with IEEE arithmetic up to the accuracy of the functions.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

from lampwork.ir.interpret import converted_bits
from lampwork.ir.loops import (
    FIRSTS,
    POSITIONS,
    Accumulate,
    Accumulator,
    Compute,
    Constant,
    Expr,
    If,
    Index,
    Kernel,
    Let,
    Load,
    Local,
    Loop,
    Scratch,
    Stmt,
    Store,
)
from lampwork.ir.scalar_operators import SCALARS, Number, carries_nan
from lampwork.ir.size import evaluate

Memory = dict[str, list]

_BITS = {"int64": 64, "int32": 32, "int16": 16, "int8": 8, "uint64": 64, "uint32": 32, "uint16": 16, "uint8": 8}
_FORMATS = {
    "float64": "<d", "float32": "<f", "float16": "<e", "int64": "<q", "int32": "<i", "int16": "<h", "int8": "<b",
    "uint64": "<Q", "uint32": "<I", "uint16": "<H", "uint8": "<B",
}  # fmt: skip


def wrap(value: Number, dtype: str) -> Number:
    """`value` as an element of `dtype`: integers wrap, floats round to nearest even, overflow is infinite."""
    if dtype == "bool":
        return bool(value)
    if dtype in _BITS:
        bits = _BITS[dtype]
        value = int(value) & ((1 << bits) - 1)
        return value - (1 << bits) if not dtype.startswith("u") and value >> (bits - 1) else value
    value = float(value)
    if dtype == "float64" or math.isnan(value) or math.isinf(value):
        return value
    if dtype == "bfloat16":
        return _round_bfloat16(value)
    try:
        return struct.unpack(_FORMATS[dtype], struct.pack(_FORMATS[dtype], value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def _round_bfloat16(value: float) -> float:
    value = wrap(value, "float32")
    if math.isinf(value):
        return value
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def cast(value: Number, dtype: str) -> Number:
    """torch's `.to(dtype)`, as `interpret.convert`."""
    if dtype in _BITS and isinstance(value, float):
        least = -(1 << converted_bits(dtype) - 1)
        is_large = dtype == "uint64" and 2.0**63 <= value < 2.0**64
        value = int(value) if is_large or abs(value) < -least else least
    return wrap(value, dtype)


def compute(expr: Compute, args: list[Any]) -> Number:
    """One operation on Python numbers that are already elements of the operands' types."""
    if expr.op == "cast":
        return cast(args[0], expr.dtype)
    if expr.op == "bitcast":
        source = expr.args[0].dtype
        return struct.unpack(_FORMATS[expr.dtype], struct.pack(_FORMATS[source], args[0]))[0]
    row = SCALARS[expr.op]
    assert row.numbers is not None, f"{expr.op} depends on types"
    return wrap(row.numbers(expr.dtype, *args) if row.typed else row.numbers(*args), expr.dtype)


_IDENTITY: Mapping[str, Number] = {"sum": 0, "prod": 1, "any": False, "all": True}


def identity(op: str, dtype: str) -> Number:
    """What an accumulator of `op` starts from."""
    if op in _IDENTITY:
        return wrap(_IDENTITY[op], dtype)
    lowest = "max" in op
    if dtype == "bool":
        return not lowest
    if dtype in _BITS:
        bits = _BITS[dtype]
        if dtype.startswith("u"):
            return 0 if lowest else (1 << bits) - 1
        return -(1 << (bits - 1)) if lowest else (1 << (bits - 1)) - 1
    return -math.inf if lowest else math.inf


def fold(op: str, dtype: str, total: Number, value: Number) -> Number:
    """One step of a reduction that has no position."""
    if op == "sum":
        return wrap(total + value, dtype)
    if op == "prod":
        return wrap(total * value, dtype)
    if op in ("max", "min"):
        return carries_nan(max if op == "max" else min)(total, value)
    if op in FIRSTS:
        return carries_nan(max if FIRSTS[op] == "max" else min)(total, value)
    return (total or bool(value)) if op == "any" else (total and bool(value))


def better(op: str, value: Number, position: int, best: Number, best_position: int | None) -> bool:
    """Whether (value, position) beats the best so far: NaN wins, then the extreme value, then the lower position."""
    if best_position is None:
        return True
    if value != value or best != best:
        later = op == "argmax_of_window"
        return value != value and (best == best or (position > best_position) == later)
    if value == best:
        return position < best_position
    return value < best if op == "argmin" else value > best


class KernelFault(AssertionError):
    """A kernel read or wrote outside its parameters, or used a name that is not visible."""


def run_kernel(kernel: Kernel, buffers: list[list], sizes: Mapping[str, int] | None = None) -> None:
    """Run `kernel` on `buffers` (in parameter order; modified in place). `sizes` gives values for `kernel.sizes`."""
    memory: Memory = {p.name: buffer for p, buffer in zip(kernel.parameters, buffers)}
    dtypes = {p.name: p.dtype for p in kernel.parameters}
    _Frame(memory, dtypes, dict(sizes or {})).run(kernel.body)


class _Frame:
    def __init__(self, memory: Memory, dtypes: dict[str, str], symbols: dict[str, int]) -> None:
        self.memory, self.dtypes, self.symbols = memory, dtypes, symbols
        self.locals: dict[str, Number] = {}
        self.accumulators: dict[str, Accumulator] = {}
        self.best: dict[str, tuple[Number, int | None]] = {}

    def run(self, body: tuple[Stmt, ...]) -> None:
        for stmt in body:
            if isinstance(stmt, Loop):
                for number in range(evaluate(stmt.axis.extent, self.symbols)):
                    self.symbols[stmt.axis.name] = number
                    self.run(stmt.body)
                self.symbols.pop(stmt.axis.name, None)
            elif isinstance(stmt, Let):
                self.locals[stmt.name] = self.value(stmt.value)
            elif isinstance(stmt, Accumulator):
                self.accumulators[stmt.name] = stmt
                self.locals[stmt.name] = identity(stmt.op, stmt.dtype)
                self.best[stmt.name] = (self.locals[stmt.name], None)
                if stmt.op.startswith("arg"):
                    self.locals[stmt.name] = 0
            elif isinstance(stmt, Accumulate):
                self.accumulate(stmt)
            elif isinstance(stmt, Scratch):
                self.memory[stmt.name] = [math.nan] * stmt.numel
                self.dtypes[stmt.name] = stmt.dtype
            elif isinstance(stmt, Store):
                self.store(stmt)
            elif isinstance(stmt, If):
                if self.value(stmt.condition):
                    self.run(stmt.body)
            else:
                raise TypeError(f"not a statement: {stmt!r}")

    def accumulate(self, stmt: Accumulate) -> None:
        accumulator = self.accumulators[stmt.name]
        value = self.value(stmt.value)
        if stmt.position is not None:
            is_position = accumulator.op in POSITIONS
            op = accumulator.op if is_position else f"arg{FIRSTS[accumulator.op]}"
            position = evaluate(stmt.position, self.symbols)
            if better(op, value, position, *self.best[stmt.name]):
                self.best[stmt.name] = (value, position)
                self.locals[stmt.name] = position if is_position else value
        else:
            self.locals[stmt.name] = fold(accumulator.op, accumulator.dtype, self.locals[stmt.name], value)

    def store(self, stmt: Store) -> None:
        value = self.value(stmt.value)
        place = self.place(stmt.buffer, stmt.index, stmt.indirect)
        cells, dtype = self.memory[stmt.buffer], self.dtypes[stmt.buffer]
        cells[place] = wrap(cells[place] + value, dtype) if stmt.mode == "add" else wrap(value, dtype)

    def place(self, buffer: str, index: tuple, indirect: tuple) -> int:
        symbols = self.symbols
        if indirect:
            symbols = {**symbols, **{name: int(self.value(value)) for name, value in indirect}}
        place = evaluate(index[0], symbols)
        if not 0 <= place < len(self.memory[buffer]):
            raise KernelFault(f"{buffer}[{place}] is outside its {len(self.memory[buffer])} elements")
        return place

    def value(self, expr: Expr) -> Number:
        if isinstance(expr, Constant):
            return wrap(expr.value, expr.dtype)
        if isinstance(expr, Index):
            return evaluate(expr.value, self.symbols)
        if isinstance(expr, Local):
            return self.locals[expr.name]
        if isinstance(expr, Load):
            if expr.mask is not None and not self.value(expr.mask):
                return wrap(expr.other, expr.dtype)
            return self.memory[expr.buffer][self.place(expr.buffer, expr.index, expr.indirect)]
        return compute(expr, [self.value(arg) for arg in expr.args])
