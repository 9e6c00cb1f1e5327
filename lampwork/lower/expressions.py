"""Typed builders of scalar expressions. Each returns a well-typed `Expr`; operands must already have one type.

Folds only what is exact: conversions of literals, sums and products of int64 index arithmetic, products and quotients
with 1 (the derivative of a sum is full of them). `x + 0`, `x * 0` and the like stay (signed zeros, NaN).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

from lampwork.ir import size
from lampwork.ir.dtype import FLOAT8, FLOATING, UNSIGNED, compute_dtype
from lampwork.ir.loops import Compute, Constant, Expr, Index
from lampwork.ir.size import Size, SizeExpr
from lampwork.lower.float8 import from_float8, to_float8

_BITS = {"int64": 64, "int32": 32, "int16": 16, "int8": 8, "uint64": 64, "uint32": 32, "uint16": 16, "uint8": 8}


def _as_float32(value: float) -> float:
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def _as_float16(value: float) -> float:
    try:
        return struct.unpack("e", struct.pack("e", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def _as_bfloat16(value: float) -> float:
    if not math.isfinite(value):
        return value
    (bits,) = struct.unpack("I", struct.pack("f", value))
    bits += 0x7FFF + (bits >> 16 & 1)  # to nearest, ties to even; what overflows becomes the bits of infinity
    return struct.unpack("f", struct.pack("I", bits & 0xFFFF0000))[0]


#: Numbers become half types by way of float32, as in ATen.
_ROUNDED: dict[str, Callable[[float], float]] = {
    "float64": float,
    "float32": _as_float32,
    "float16": lambda value: _as_float16(_as_float32(value)),
    "bfloat16": lambda value: _as_bfloat16(_as_float32(value)),
}


def constant(value: bool | int | float, dtype: str) -> Constant:
    """The literal `value` as `dtype`: integers wrap, floats are rounded. `TypeError` for a size that varies:
    the operator goes through ATen then."""
    if dtype == "bool":
        if isinstance(value, SizeExpr):  # any object is true
            raise TypeError(f"{value} is no literal")
        return Constant(bool(value), "bool")
    if dtype in FLOATING:
        return Constant(_ROUNDED[dtype](float(value)), dtype)
    number = int(value)
    bits = _BITS[dtype]
    number &= (1 << bits) - 1
    if dtype not in UNSIGNED and number >> (bits - 1):
        number -= 1 << bits
    return Constant(number, dtype)


def cast(value: Expr, dtype: str) -> Expr:
    """`value.to(dtype)`; literals are converted here when the conversion is exact in every implementation."""
    if value.dtype == dtype:
        return value
    if value.dtype in FLOAT8:
        return cast(from_float8(value), dtype)
    if dtype in FLOAT8:
        return to_float8(cast(value, "float32"), dtype)
    if type(value) is Constant and dtype not in ("float16", "bfloat16"):
        number = value.value
        if dtype in FLOATING or dtype == "bool" or not isinstance(number, float):
            return constant(number, dtype)
        if math.isfinite(number) and abs(number) < 2**31 and dtype in ("int64", "int32"):
            return constant(int(number), dtype)
    return Compute("cast", (value,), dtype)


def kept_in(value: Expr, dtype: str) -> Expr:
    """`value` as an operator reads it that another one stored as `dtype`: rounded, and in the type to compute in."""
    return cast(cast(value, dtype), compute_dtype(dtype))


def unary(op: str, a: Expr) -> Expr:
    return Compute(op, (a,), a.dtype)


def test(op: str, a: Expr) -> Expr:
    """isnan, isinf, signbit."""
    return Compute(op, (a,), "bool")


def is_finite(a: Expr) -> Expr:
    if a.dtype not in FLOATING:
        return constant(True, "bool")
    return compare("lt", unary("abs", a), like(math.inf, a))


def binary(op: str, a: Expr, b: Expr) -> Expr:
    if op == "and" and a.dtype == "bool":
        joined = both(a, b)
        assert joined is not None
        return joined
    return Compute(op, (a, b), a.dtype)


def compare(op: str, a: Expr, b: Expr) -> Expr:
    return Compute(op, (a, b), "bool")


def at_least(position: Size, limit: Size) -> Expr:
    """`position >= limit` of index arithmetic; what bounds prove is a literal."""
    if size.bounds(position)[0] >= size.bounds(limit)[1]:
        return Constant(True, "bool")
    if size.bounds(position)[1] < size.bounds(limit)[0]:
        return Constant(False, "bool")
    return Compute("ge", (as_index(position), as_index(limit)), "bool")


def below(position: Size, limit: Size) -> Expr:
    """`position < limit` of index arithmetic; what bounds prove is a literal."""
    if size.bounds(position)[1] < size.bounds(limit)[0]:
        return Constant(True, "bool")
    if size.bounds(position)[0] >= size.bounds(limit)[1]:
        return Constant(False, "bool")
    return Compute("lt", (as_index(position), as_index(limit)), "bool")


def as_index(value: Size) -> Expr:
    """Index arithmetic as an int64 value."""
    return Constant(value, "int64") if isinstance(value, int) else Index(value)


def _index_arithmetic(function: Callable, a: Expr, b: Expr) -> Expr | None:
    """`function` of two int64 operands that are literals or index arithmetic, where no overflow is possible."""
    if a.dtype != "int64" or not isinstance(a, (Index, Constant)) or not isinstance(b, (Index, Constant)):
        return None
    result = function(a.value, b.value)
    low, high = size.bounds(result)
    if low < -(1 << 61) or high > 1 << 61:
        return None
    return Constant(result, "int64") if isinstance(result, int) else Index(result)


def add(a: Expr, b: Expr) -> Expr:
    if type(a) in (Index, Constant):
        folded = _index_arithmetic(size.add, a, b)
        if folded is not None:
            return folded
    return Compute("add" if a.dtype != "bool" else "or", (a, b), a.dtype)


def fma(a: Expr, b: Expr, c: Expr) -> Expr:
    """`a * b + c` of float32 or float64, rounded once."""
    return Compute("fma", (a, b, c), a.dtype)


def sub(a: Expr, b: Expr) -> Expr:
    if type(a) in (Index, Constant):
        folded = _index_arithmetic(lambda left, right: size.add(left, size.mul(right, -1)), a, b)
        if folded is not None:
            return folded
    return Compute("sub", (a, b), a.dtype)


def mul(a: Expr, b: Expr) -> Expr:
    if type(a) in (Index, Constant):
        folded = _index_arithmetic(size.mul, a, b)
        if folded is not None:
            return folded
    if _is_one(b):
        return a
    if _is_one(a):
        return b
    return Compute("mul" if a.dtype != "bool" else "and", (a, b), a.dtype)


def _is_one(value: Expr) -> bool:
    return type(value) is Constant and value.dtype != "bool" and value.value == 1


def div(a: Expr, b: Expr) -> Expr:
    if _is_one(b):
        return a
    return Compute("div", (a, b), a.dtype)


def minimum(a: Expr, b: Expr) -> Expr:
    return Compute("minimum" if a.dtype != "bool" else "and", (a, b), a.dtype)


def maximum(a: Expr, b: Expr) -> Expr:
    return Compute("maximum" if a.dtype != "bool" else "or", (a, b), a.dtype)


def where(condition: Expr, a: Expr, b: Expr) -> Expr:
    if type(condition) is Constant:
        return a if condition.value else b
    if type(a) is Constant and type(b) is Constant and a.dtype == "bool" and a.value and not b.value:
        return condition
    return Compute("where", (condition, a, b), a.dtype)


def both(a: Expr | None, b: Expr | None) -> Expr | None:
    """Conjunction of two optional conditions (None: always true)."""
    if a is None or (type(a) is Constant and a.value):
        return b
    if b is None or (type(b) is Constant and b.value):
        return a
    if type(a) is Constant or type(b) is Constant:
        return Constant(False, "bool")
    return Compute("and", (a, b), "bool")


def like(value: Any, other: Expr) -> Constant:
    """The literal `value` in the type of `other`."""
    return constant(value, other.dtype)
