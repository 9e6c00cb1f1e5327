"""Conversions of float8 made of integer operations: every GPU has these, and they are c10's to the last bit.

    float32 -> float8_e4m3fn    round to nearest even; beyond 448: NaN, or 448 from the PyTorch on that saturates
    float32 -> float8_e5m2      round to nearest even; beyond 57344: infinity
    float8  -> float32          exact, by way of float16

A kernel sees float8 as bytes. Other types are converted through float32, as ATen does.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch

from lampwork.ir.loops import Compute, Constant, Expr

_INFINITY = 0x7F800000


class _Format(NamedTuple):
    """`shift`: bits of a float32's mantissa that go; the rest are bits of positive float32 numbers.

    `smallest`: the least normal number. `limit`: from here on numbers are `overflow`. `unit`: added to a number below
    the least normal one, it leaves its float8 in the lowest bits.
    """

    bias: int
    shift: int
    smallest: int
    limit: int
    overflow: int
    unit: float


_FORMATS = {
    "float8_e4m3fn": _Format(7, 20, 121 << 23, 1087 << 20, 0x7F, 2.0**14),
    "float8_e5m2": _Format(15, 21, 113 << 23, 143 << 23, 0x7C, 2.0**7),
}


@functools.cache
def _saturates() -> bool:
    """Whether this PyTorch makes the largest number of what is too large for float8_e4m3fn."""
    return not bool(torch.tensor(1e9).to(torch.float8_e4m3fn).float().isnan())


def to_float8(value: Expr, dtype: str) -> Expr:
    """A float32 `value` as `dtype`."""
    form = _FORMATS[dtype]
    bits = _bits(value, "uint32")
    size = _u32("and", bits, 0x7FFFFFFF)
    odd = _u32("and", _u32("shift_right", size, form.shift), 1)
    rebiased = ((form.bias - 127) << 23) + (1 << (form.shift - 1)) - 1
    normal = _u32("shift_right", Compute("add", (_u32("add", size, rebiased), odd), "uint32"), form.shift)
    shifted = Compute("add", (_bits(size, "float32"), Constant(form.unit, "float32")), "float32")
    tiny = _u32("and", _bits(shifted, "uint32"), 0xFF)
    small = _where("lt", size, form.smallest, tiny, normal)
    overflow, limit = form.overflow, form.limit
    if dtype == "float8_e4m3fn" and _saturates():
        overflow, limit = 0x7E, (1087 << 20) - (1 << 19) + 1  # what would round to 480
    large = _where("lt", size, limit, small, Constant(overflow, "uint32"))
    magnitude = _where("le", size, _INFINITY, large, Constant(0x7F, "uint32"))
    sign = _u32("and", _u32("shift_right", bits, 24), 0x80)
    byte = Compute("cast", (Compute("or", (magnitude, sign), "uint32"),), "uint8")
    return _bits(byte, dtype)


def from_float8(value: Expr) -> Expr:
    """A float8 `value` as float32."""
    bits = Compute("cast", (_bits(value, "uint8"),), "uint16")
    if value.dtype == "float8_e5m2":
        return Compute("cast", (_bits(_u16("shift_left", bits, 8), "float16"),), "float32")
    size = _u16("and", bits, 0x7F)
    sign = _u16("shift_left", _u16("and", bits, 0x80), 8)
    half = _bits(Compute("or", (_u16("shift_left", size, 7), sign), "uint16"), "float16")
    number = Compute("mul", (Compute("cast", (half,), "float32"), Constant(256.0, "float32")), "float32")
    is_nan = Compute("eq", (size, Constant(0x7F, "uint16")), "bool")
    return Compute("where", (is_nan, Constant(float("nan"), "float32"), number), "float32")


def _bits(value: Expr, dtype: str) -> Expr:
    return Compute("bitcast", (value,), dtype)


def _u32(op: str, value: Expr, number: int) -> Expr:
    return Compute(op, (value, Constant(number & 0xFFFFFFFF, "uint32")), "uint32")


def _u16(op: str, value: Expr, number: int) -> Expr:
    return Compute(op, (value, Constant(number, "uint16")), "uint16")


def _where(comparison: str, value: Expr, limit: int, then: Expr, other: Expr) -> Expr:
    holds = Compute(comparison, (value, Constant(limit, "uint32")), "bool")
    return Compute("where", (holds, then, other), "uint32")
