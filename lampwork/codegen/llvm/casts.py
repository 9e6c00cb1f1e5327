"""Conversions between element types, as torch's `.to()` does them on x86."""

from __future__ import annotations

from lampwork.codegen.llvm.builder import Builder, Value
from lampwork.codegen.llvm.types import BITS, REGISTER
from lampwork.ir.dtype import FLOATING, SIGNED

HALF = ("float16", "bfloat16")


def cast(build: Builder, value: Value, source: str, target: str, native_half: bool) -> Value:
    """`value` of element type `source` as `target`. `native_half`: the machine converts float16 itself (F16C)."""
    if source == target:
        return value
    if source in HALF:
        wide = half_to_float(build, value, source, native_half)
        return cast(build, wide, "float32", target, native_half)
    if target in HALF:
        return float_to_half(build, cast(build, value, source, "float32", native_half), target, native_half)
    type = REGISTER[target]
    if target == "bool":
        if source in FLOATING:
            return build.compare("fcmp une", value, build.number(0.0, value.type))
        return build.compare("icmp ne", value, build.integer(0, value.type))
    if source == "bool":
        return build.from_bool(value, type)
    if source in FLOATING and target in FLOATING:
        return build.convert("fpext" if type == "double" else "fptrunc", value, type)
    if source in FLOATING:
        return float_to_integer(build, value, target)
    if target in FLOATING:
        return build.convert("sitofp" if source in SIGNED else "uitofp", value, type)
    if BITS[type] <= BITS[value.type]:
        return build.convert("trunc", value, type)
    return build.convert("sext" if source in SIGNED else "zext", value, type)


def float_to_integer(build: Builder, value: Value, target: str) -> Value:
    """Truncation; NaN and what does not fit give the smallest integer of the conversion's width, as on x86.

    Narrow types convert through int32 and keep the low bits, as in ATen; uint8 through int64, which only for float64
    makes a difference.
    """
    type = REGISTER[target]
    if target == "uint64":
        limit = build.number(2.0**63, value.type)
        large = build.compare("fcmp oge", value, limit)
        small = build.select(large, build.fsub(value, limit), value)
        bits = _truncate(build, small, "i64")
        return build.binary("xor", bits, build.select(large, build.integer(-(1 << 63)), build.integer(0)))
    wide = target in ("int64", "uint32") or (target == "uint8" and value.type == "double")
    width = 64 if wide else 32
    return build.convert("trunc", _truncate(build, value, f"i{width}"), type)


def _truncate(build: Builder, value: Value, type: str) -> Value:
    limit = 2.0 ** (BITS[type] - 1)
    fits = build.compare("fcmp olt", build.fabs(value), build.number(limit, value.type))
    safe = build.select(fits, value, build.number(0.0, value.type))
    return build.select(fits, build.convert("fptosi", safe, type), build.integer(-(1 << (BITS[type] - 1)), type))


def half_to_float(build: Builder, value: Value, dtype: str, native_half: bool) -> Value:
    """Bits of a half type (i16) to float32, exactly."""
    if dtype == "bfloat16":
        rounded = build.rounded.get(value.text)
        if rounded is not None:
            # Just rounded: its bits stand in the upper half already.
            bits = build.binary("and", rounded, build.integer(0xFFFF0000, "i32"))
        else:
            bits = build.binary("shl", build.convert("zext", value, "i32"), build.integer(16, "i32"))
        return build.convert("bitcast", bits, "float")
    if native_half:
        return build.convert("fpext", build.convert("bitcast", value, "half"), "float")
    # Shift exponent and mantissa into place and correct the exponent's bias by a product, which also normalises
    # denormals; infinities and NaN get the largest exponent.
    wide = build.convert("zext", value, "i32")
    magnitude = build.binary("shl", build.binary("and", wide, build.integer(0x7FFF, "i32")), build.integer(13, "i32"))
    scaled = build.fmul(build.convert("bitcast", magnitude, "float"), build.number(2.0**112, "float"))
    special = build.compare("icmp uge", magnitude, build.integer(0x7C00 << 13, "i32"))
    infinite = build.binary("or", magnitude, build.integer(0x7F800000, "i32"))
    bits = build.select(special, infinite, build.convert("bitcast", scaled, "i32"))
    sign = build.binary("shl", build.binary("and", wide, build.integer(0x8000, "i32")), build.integer(16, "i32"))
    return build.convert("bitcast", build.binary("or", bits, sign), "float")


def float_to_half(build: Builder, value: Value, dtype: str, native_half: bool) -> Value:
    """float32 to the bits (i16) of a half type, to nearest even; NaN stays NaN, denormals are kept."""
    bits = build.convert("bitcast", value, "i32")
    if dtype == "bfloat16":
        odd = build.binary("and", build.binary("lshr", bits, build.integer(16, "i32")), build.integer(1, "i32"))
        bias = build.binary("add", odd, build.integer(0x7FFF, "i32"))
        rounded = build.binary("add", bits, bias)
        rounded = build.select(build.is_nan(value), build.integer(0x7FC00000, "i32"), rounded)
        half = build.convert("trunc", build.binary("lshr", rounded, build.integer(16, "i32")), "i16")
        build.rounded[half.text] = rounded
        return half
    if native_half:
        return build.convert("bitcast", build.convert("fptrunc", value, "half"), "i16")
    # Fabian Giesen's float_to_half_fast3_rtne: https://gist.github.com/rygorous/2156668
    magnitude = build.binary("and", bits, build.integer(0x7FFFFFFF, "i32"))
    sign = build.binary("lshr", build.binary("and", bits, build.integer(0x80000000, "i32")), build.integer(16, "i32"))
    overflow = build.compare("icmp uge", magnitude, build.integer((127 + 16) << 23, "i32"))
    nan = build.compare("icmp ugt", magnitude, build.integer(0x7F800000, "i32"))
    special = build.select(nan, build.integer(0x7E00, "i32"), build.integer(0x7C00, "i32"))
    small = build.compare("icmp ult", magnitude, build.integer(113 << 23, "i32"))
    magic = ((127 - 15) + (23 - 10) + 1) << 23
    magic_float = build.convert("bitcast", build.integer(magic, "i32"), "float")
    shifted = build.fadd(build.convert("bitcast", magnitude, "float"), magic_float)
    denormal = build.binary("sub", build.convert("bitcast", shifted, "i32"), build.integer(magic, "i32"))
    odd = build.binary("and", build.binary("lshr", magnitude, build.integer(13, "i32")), build.integer(1, "i32"))
    normal = build.binary("add", magnitude, build.integer(((15 - 127) << 23) + 0xFFF, "i32"))
    normal = build.binary("lshr", build.binary("add", normal, odd), build.integer(13, "i32"))
    result = build.select(overflow, special, build.select(small, denormal, normal))
    return build.convert("trunc", build.binary("or", result, sign), "i16")
