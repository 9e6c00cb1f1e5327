"""The meaning of kernels and programs, slowly and obviously: one Python number at a time, no vectors, no threads.

Memory is a list of Python numbers per buffer (`Memory`), flat, in elements from the buffer's first. Values are
rounded to
their type after every operation, so results agree with IEEE arithmetic up to the accuracy of the functions.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

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
from lampwork.ir.random import random_bits
from lampwork.ir.size import evaluate

Number = bool | int | float
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
    """torch's `.to(dtype)` for values in range; NaN and infinities become 0 in integers."""
    if dtype in _BITS and isinstance(value, float):
        value = 0 if math.isnan(value) or math.isinf(value) else int(value)
    return wrap(value, dtype)


def _guarded(function: Callable[..., float]) -> Callable[..., float]:
    """A function of `math` that answers NaN outside its domain and infinity on overflow, as C does."""

    def call(*args: float) -> float:
        if any(math.isnan(arg) for arg in args):
            return math.nan
        try:
            return function(*args)
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return call


def _divide(a: float, b: float) -> float:
    if b == 0:
        if a == 0 or math.isnan(a):
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)
    return a / b


def _log(function: Callable[[float], float], pole: float = 0.0) -> Callable[[float], float]:
    guarded = _guarded(function)
    return lambda a: -math.inf if a == pole else guarded(a)


def _floordiv(a: Number, b: Number) -> Number:
    if isinstance(a, float):
        return math.floor(_divide(a, b)) if b != 0 and math.isfinite(_divide(a, b)) else _divide(a, b)
    return a // b if b else 0


def _python_mod(a: Number, b: Number) -> Number:
    if isinstance(a, float):
        if b == 0 or math.isinf(a) or math.isnan(a) or math.isnan(b):
            return math.nan
        return a % b
    return a % b if b else 0


def _truncdiv(a: int, b: int) -> int:
    return 0 if b == 0 else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)


def _fmod(a: Any, b: Any) -> Number:
    if isinstance(a, float):
        return _guarded(math.fmod)(a, b)
    return 0 if b == 0 else a - b * _truncdiv(a, b)


def _carries_nan(pick: Callable) -> Callable:
    return lambda a, b: a if a != a else (b if b != b else pick(a, b))


def _skips_nan(pick: Callable) -> Callable:
    return lambda a, b: b if a != a else (a if b != b else pick(a, b))


def _sign(a: Number) -> Number:
    return a if a != a else type(a)((a > 0) - (a < 0))


def _pow(a: Number, b: Number) -> Number:
    if isinstance(a, float):
        if b == 0 or a == 1:
            return 1.0
        try:
            return math.pow(a, b)
        except OverflowError:
            return -math.inf if a < 0 and b == int(b) and int(b) % 2 else math.inf
        except ValueError:
            return math.nan if a < 0 else math.inf
    if b < 0:
        return {1: 1, -1: -1 if b % 2 else 1}.get(a, 0)
    return a**b


def _fma(a: float, b: float, c: float) -> float:
    if not all(map(math.isfinite, (a, b, c))):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if not exact:  # whose sign is that of the sum of zeros, or of what cancels
        return a * b + c if a == 0 or b == 0 else 0.0
    try:
        return float(exact)
    except OverflowError:
        return math.copysign(math.inf, exact)


def _sigmoid(a: float) -> float:
    return _divide(1.0, 1.0 + _guarded(math.exp)(-a))


def _keep_integers(function: Callable[[float], float]) -> Callable[[Number], Number]:
    return lambda a: a if isinstance(a, int) or not math.isfinite(a) else math.copysign(float(function(a)), a)


_SIMPLE: Mapping[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": _divide,
    "floordiv": _floordiv, "truncdiv": _truncdiv, "mod": _python_mod, "fmod": _fmod,
    "neg": lambda a: -a, "abs": abs, "sign": _sign, "reciprocal": lambda a: _divide(1.0, a),
    "minimum": _carries_nan(min), "maximum": _carries_nan(max), "fmin": _skips_nan(min), "fmax": _skips_nan(max),
    "pow": _pow, "sqrt": _guarded(math.sqrt), "rsqrt": lambda a: _divide(1.0, _guarded(math.sqrt)(a)),
    "exp": _guarded(math.exp), "exp2": _guarded(lambda a: 2.0**a), "expm1": _guarded(math.expm1),
    "log": _log(math.log), "log2": _log(math.log2), "log10": _log(math.log10), "log1p": _log(math.log1p, -1.0),
    "sin": _guarded(math.sin), "cos": _guarded(math.cos), "tan": _guarded(math.tan), "asin": _guarded(math.asin),
    "acos": _guarded(math.acos), "atan": _guarded(math.atan), "atan2": _guarded(math.atan2),
    "sinh": lambda a: math.copysign(_guarded(math.sinh)(abs(a)), a), "cosh": _guarded(math.cosh),
    "tanh": _guarded(math.tanh), "asinh": _guarded(math.asinh), "acosh": _guarded(math.acosh),
    "atanh": lambda a: math.copysign(math.inf, a) if abs(a) == 1 else _guarded(math.atanh)(a),
    "erf": _guarded(math.erf), "erfc": _guarded(math.erfc), "lgamma": _guarded(math.lgamma),
    "gelu": _guarded(lambda x: 0.5 * x * math.erfc(-x * math.sqrt(0.5))),
    "hypot": _guarded(math.hypot), "copysign": math.copysign, "nextafter": _guarded(math.nextafter),
    "fma": _fma,
    "sigmoid": _sigmoid, "floor": _keep_integers(math.floor), "ceil": _keep_integers(math.ceil),
    "trunc": _keep_integers(math.trunc), "round": _keep_integers(round),
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    "isnan": lambda a: a != a, "isinf": lambda a: isinstance(a, float) and math.isinf(a),
    "signbit": lambda a: math.copysign(1.0, a) < 0,
}  # fmt: skip


def compute(expr: Compute, args: list[Any]) -> Number:
    """One operation on Python numbers that are already elements of the operands' types."""
    op = expr.op
    if op == "cast":
        return cast(args[0], expr.dtype)
    if op == "where":
        return args[1] if args[0] else args[2]
    if op == "asserted":
        if not args[1]:
            raise AssertionError("an asserted condition does not hold")
        return args[0]
    if op == "not":
        return (not args[0]) if expr.dtype == "bool" else wrap(~args[0], expr.dtype)
    if op in ("shift_left", "shift_right"):
        bits = _BITS[expr.dtype]
        if not 0 <= args[1] < bits:
            return -1 if op == "shift_right" and args[0] < 0 else 0
        return wrap(args[0] << args[1] if op == "shift_left" else args[0] >> args[1], expr.dtype)
    if op == "bitcast":
        source = expr.args[0].dtype
        return struct.unpack(_FORMATS[expr.dtype], struct.pack(_FORMATS[source], args[0]))[0]
    if op == "random":
        return random_bits(*args)
    if op == "nextafter" and expr.dtype == "float32":
        return _next_float32(*args)
    return wrap(_SIMPLE[op](*args), expr.dtype)


def _next_float32(a: float, b: float) -> float:
    if a != a or b != b:
        return math.nan
    if a == b:
        return b
    if a == 0:
        return math.copysign(struct.unpack("<f", struct.pack("<I", 1))[0], b)
    bits = struct.unpack("<i", struct.pack("<f", a))[0]
    bits += 1 if (a < b) == (a > 0) else -1
    return struct.unpack("<f", struct.pack("<i", bits))[0]


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
        return _carries_nan(max if op == "max" else min)(total, value)
    if op in FIRSTS:
        return _carries_nan(max if FIRSTS[op] == "max" else min)(total, value)
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
