"""How element types look to LLVM: in registers, in memory, and as literals.

In registers bool is `i1` and the half types are their bits (`i16`): arithmetic on them is done in float32.
"""

from __future__ import annotations

import math
import struct
from typing import Final

REGISTER: Final[dict[str, str]] = {
    "float64": "double", "float32": "float", "float16": "i16", "bfloat16": "i16",
    "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8",
    "uint64": "i64", "uint32": "i32", "uint16": "i16", "uint8": "i8", "bool": "i1",
}  # fmt: skip

#: As REGISTER, except that bool takes a byte.
MEMORY: Final[dict[str, str]] = {**REGISTER, "bool": "i8"}

BITS: Final[dict[str, int]] = {"double": 64, "float": 32, "half": 16, "i64": 64, "i32": 32, "i16": 16, "i8": 8, "i1": 1}

#: How intrinsics spell types in their names.
MANGLED: Final[dict[str, str]] = {
    "double": "f64", "float": "f32", "half": "f16", "i64": "i64", "i32": "i32", "i16": "i16", "i8": "i8", "i1": "i1",
    "ptr": "p0",
}  # fmt: skip


def vector(type: str, lanes: int) -> str:
    """`type` itself for one lane, else `<lanes x type>`."""
    return type if lanes == 1 else f"<{lanes} x {type}>"


def mangled(type: str, lanes: int) -> str:
    """`f32` or `v16f32`, as intrinsic names end."""
    return MANGLED[type] if lanes == 1 else f"v{lanes}{MANGLED[type]}"


def float_literal(value: float, type: str) -> str:
    """`value` rounded to `type`, written exactly. Overflow rounds to infinity, as a cast does."""
    if type == "float" and math.isfinite(value):
        try:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            value = math.copysign(math.inf, value)
    if value != value:
        return "0x7FF8000000000000"
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def float_bits(text: str, type: str) -> int:
    """The bits of a literal that `float_literal` wrote."""
    bits = int(text, 16)
    if type == "double":
        return bits
    return int(struct.unpack("<I", struct.pack("<f", struct.unpack("<d", struct.pack("<Q", bits))[0]))[0])


def half_bits(value: float, dtype: str) -> int:
    """The bits of `value` as float16 or bfloat16, rounded to nearest even from float32."""
    if dtype == "float16":
        if value != value:
            return 0x7E00
        try:
            return int(struct.unpack("<H", struct.pack("<e", value))[0])
        except OverflowError:
            return 0x7C00 if value > 0 else 0xFC00
    try:
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        bits = 0x7F800000 if value > 0 else 0xFF800000
    if bits & 0x7FFFFFFF > 0x7F800000:
        return 0x7FC0
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF


def literal(value: bool | int | float, dtype: str) -> str:
    """The literal of `value` as `dtype`. Integers wrap into the type's range."""
    type = REGISTER[dtype]
    if type in ("float", "double"):
        return float_literal(float(value), type)
    if dtype in ("float16", "bfloat16"):
        return str(half_bits(float(value), dtype))
    if dtype == "bool":
        return "true" if value else "false"
    bits = BITS[type]
    wrapped = int(value) & ((1 << bits) - 1)
    return str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped)
