"""Transcendental functions inline, for any vector width. Errors in ulp are measured by tests/unit/codegen.

Polynomials are those of the Cephes library (S. L. Moshier), erf after N. Juffa, float64 log after fdlibm, unless a
comment says otherwise. `fmuladd` is fused where the machine can; no step needs it to be.
Each emitter takes the `Arithmetic` it writes with and one value of type float or double.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lampwork.codegen.llvm.builder import Builder, Value
from lampwork.codegen.llvm.types import vector


def _polynomial(build: Builder, x: Value, coefficients: tuple[float, ...], square: Value | None = None) -> Value:
    """Horner's scheme, highest power first. Given x squared, in pairs: as many operations, half as long a chain."""
    numbers = [build.number(coefficient, x.type) for coefficient in coefficients]
    if square is not None:
        first = [numbers.pop(0)] if len(numbers) % 2 else []
        numbers = first + [
            build.multiply_add(high, x, low) for high, low in zip(numbers[::2], numbers[1::2])
        ]  # fmt: skip
        x = square
    result = numbers[0]
    for number in numbers[1:]:
        result = build.multiply_add(result, x, number)
    return result


def _clamp(build: Builder, x: Value, low: float, high: float) -> Value:
    """NaN stays NaN."""
    low_value, high_value = build.number(low, x.type), build.number(high, x.type)
    x = build.select(build.compare("fcmp olt", x, low_value), low_value, x)
    return build.select(build.compare("fcmp ogt", x, high_value), high_value, x)


class _Float:
    """What the algorithms need to know of a floating type."""

    def __init__(self, type: str, bits: str, mantissa: int, bias: int) -> None:
        self.type, self.bits, self.mantissa, self.bias = type, bits, mantissa, bias
        # Adding this to a number of moderate size leaves its nearest integer in the low mantissa bits.
        self.magic = 1.5 * 2.0**mantissa
        self.magic_bits = (bias + mantissa) << mantissa | 1 << (mantissa - 1)


_FLOAT = {"float": _Float("float", "i32", 23, 127), "double": _Float("double", "i64", 52, 1023)}

_LN2 = {
    # (high, low): n * high is exact for every exponent n.
    "float": (0.693359375, -2.12194440e-4),
    "double": (6.93147180369123816490e-01, 1.90821492927058770002e-10),
}

_EXP_FLOAT = (
    1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1,
)  # fmt: skip
# (exp(r) - 1 - r) / r**2 for |r| <= ln(2)/2: Taylor's series, whose rest is below 5e-18.
_EXP_DOUBLE = tuple(1.0 / math.factorial(n) for n in range(13, 1, -1))


def _reduce_exp(build: Builder, x: Value) -> tuple[Value, Value, Value]:
    """`(count, shifted, q)` with exp(x) == 2**count * (1 + q), |q| < 0.42.

    `count` is a whole number as a float; the low mantissa bits of `shifted` hold it as an integer.
    """
    kind = _FLOAT[x.type]
    magic = build.number(kind.magic, x.type)
    shifted = build.multiply_add(x, build.number(1.0 / math.log(2.0), x.type), magic)
    count = build.fsub(shifted, magic)
    high, low = _LN2[x.type]
    r = build.multiply_add(count, build.number(-high, x.type), x)
    r = build.multiply_add(count, build.number(-low, x.type), r)
    square = build.fmul(r, r)
    series = _polynomial(build, r, _EXP_FLOAT if x.type == "float" else _EXP_DOUBLE, square)
    return count, shifted, build.multiply_add(square, series, r)


def _scaled(build: Builder, value: Value, shifted: Value) -> Value:
    """`value * 2**count` by adding to the exponent; `value` and the result must be normal numbers."""
    kind = _FLOAT[value.type]
    # The shift drops the bits of the magic number, whose low mantissa bits are zero.
    bits = build.convert("bitcast", value, kind.bits)
    count = build.convert("bitcast", shifted, kind.bits)
    exponent = build.binary("shl", count, build.integer(kind.mantissa, kind.bits))
    return build.convert("bitcast", build.binary("add", bits, exponent), value.type)


def _power_of_two(build: Builder, n: Value, kind: _Float, minus: int = 0) -> Value:
    """2**(n - minus) for an integer n, for a result in the normal range."""
    biased = build.binary("add", n, build.integer(kind.bias - minus, kind.bits))
    return build.convert("bitcast", build.binary("shl", biased, build.integer(kind.mantissa, kind.bits)), kind.type)


def _count(build: Builder, shifted: Value) -> Value:
    """The count of `_reduce_exp` as an integer."""
    kind = _FLOAT[shifted.type]
    return build.binary("sub", build.convert("bitcast", shifted, kind.bits), build.integer(kind.magic_bits, kind.bits))


def exp(self: Any, x: Value) -> Value:
    """Overflow gives infinity; results below the normal range are rounded once. At most 1 ulp."""
    build: Builder = self.build
    kind = _FLOAT[x.type]
    x = _clamp(build, x, *((-104.0, 89.0) if x.type == "float" else (-746.0, 710.0)))
    count, shifted, q = _reduce_exp(build, x)
    one_more = build.fadd(q, build.number(1.0, x.type))
    if self.scales and x.lanes * _BYTES[x.type] >= 16:
        return _scalef(build, one_more, count)
    # Two factors: neither 2**n nor its inverse need be a normal number.
    n = _count(build, shifted)
    half = build.binary("ashr", n, build.integer(1, kind.bits))
    first = _power_of_two(build, half, kind)
    second = _power_of_two(build, build.binary("sub", n, half), kind)
    return build.fmul(build.fmul(one_more, first), second)


_BYTES = {"float": 4, "double": 8}


def _scalef(build: Builder, value: Value, count: Value) -> Value:
    """`value * 2**count`, rounded once: AVX-512's own instruction, on vectors of 128 to 512 bits."""
    value, count = build.same_lanes(value, count)
    width = min(value.lanes, 64 // _BYTES[value.type])
    bits = width * _BYTES[value.type] * 8
    name = f"@llvm.x86.avx512.mask.scalef.{'ps' if value.type == 'float' else 'pd'}.{bits}"
    type = vector(value.type, width)
    mask = f"i{max(width, 8)}"
    rounding = ", i32" if bits == 512 else ""
    build.declare(name, f"declare {type} {name}({type}, {type}, {type}, {mask}{rounding})")
    pieces = []
    for start in range(0, value.lanes, width):
        a, b = build.piece(value, start, width), build.piece(count, start, width)
        text = f"call {type} {name}({a}, {b}, {type} zeroinitializer, {mask} -1{', i32 4' if bits == 512 else ''})"
        pieces.append(build.pure(value.type, width, text, a, b))
    return build.join(pieces)


def expm1(self: Any, x: Value) -> Value:
    if x.type == "double":
        return self.externals.function(self.build, "expm1", x)
    build: Builder = self.build
    kind = _FLOAT[x.type]
    _, shifted, q = _reduce_exp(build, _clamp(build, x, -20.0, 89.0))
    # 2 * (h*q + (h - 1/2)) with h == 2**(n-1), because 2**128 is not a number while 2**127 is.
    h = _power_of_two(build, _count(build, shifted), kind, minus=1)
    result = build.multiply_add(h, q, build.fsub(h, build.number(0.5, x.type)))
    result = build.fadd(result, result)
    return build.select(build.compare("fcmp oeq", x, build.number(0.0, x.type)), x, result)


_LOG_FLOAT = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
    2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
_LOG_DOUBLE = (
    1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01, 2.222219843214978396e-01,
    2.857142874366239149e-01, 3.999999999940941908e-01, 6.666666666666735130e-01,
)  # fmt: skip


def _positive_log(build: Builder, x: Value) -> Value:
    """log(x) for finite x > 0, denormal numbers included."""
    kind = _FLOAT[x.type]
    smallest = 2.0**-126 if x.type == "float" else 2.0**-1022
    tiny = build.compare("fcmp olt", x, build.number(smallest, x.type))
    x = build.select(tiny, build.fmul(x, build.number(2.0**kind.mantissa, x.type)), x)
    bits = build.convert("bitcast", x, kind.bits)
    # Bits of sqrt(1/2): subtracting them makes the exponent field floor(log2(x * sqrt(2))).
    root = 0x3F3504F3 if x.type == "float" else 0x3FE6A09E667F3BCD
    mantissa = build.integer(kind.mantissa, kind.bits)
    n = build.binary("ashr", build.binary("sub", bits, build.integer(root, kind.bits)), mantissa)
    m = build.convert("bitcast", build.binary("sub", bits, build.binary("shl", n, mantissa)), x.type)
    count = build.convert("sitofp", n, x.type)
    count = build.select(tiny, build.fsub(count, build.number(float(kind.mantissa), x.type)), count)
    f = build.fsub(m, build.number(1.0, x.type))
    high, low = _LN2[x.type]
    high_part, low_part = build.number(high, x.type), build.number(low, x.type)
    square = build.fmul(f, f)
    half = build.number(0.5, x.type)
    if x.type == "float":
        y = build.fmul(build.fmul(f, square), _polynomial(build, f, _LOG_FLOAT, square))
        y = build.multiply_add(count, low_part, y)
        y = build.multiply_add(square, build.number(-0.5, x.type), y)
        return build.multiply_add(count, high_part, build.fadd(f, y))
    s = build.fdiv(f, build.fadd(f, build.number(2.0, x.type)))
    z = build.fmul(s, s)
    rest = build.fmul(z, _polynomial(build, z, _LOG_DOUBLE))
    half_square = build.fmul(half, square)
    inner = build.multiply_add(s, build.fadd(half_square, rest), build.fmul(count, low_part))
    return build.fsub(build.fmul(count, high_part), build.fsub(build.fsub(half_square, inner), f))


def _log_limits(build: Builder, x: Value, result: Value) -> Value:
    """`result` for finite positive x; else what log gives."""
    infinity, zero = build.number(math.inf, x.type), build.number(0.0, x.type)
    result = build.select(build.compare("fcmp oeq", x, infinity), infinity, result)
    result = build.select(build.compare("fcmp oeq", x, zero), build.number(-math.inf, x.type), result)
    return build.select(build.compare("fcmp ult", x, zero), build.number(math.nan, x.type), result)


def log(self: Any, x: Value) -> Value:
    build: Builder = self.build
    return _log_limits(build, x, _positive_log(build, x))


def log1p(self: Any, x: Value) -> Value:
    if x.type == "double":
        return self.externals.function(self.build, "log1p", x)
    build: Builder = self.build
    one, zero = build.number(1.0, x.type), build.number(0.0, x.type)
    u = build.fadd(x, one)
    # log(1+x) == log(u) + (1 + x - u) / u, up to the square of the rounding error of u.
    lost = build.fdiv(build.fsub(x, build.fsub(u, one)), u)
    inside = build.binary(
        "and", build.compare("fcmp ogt", u, zero), build.compare("fcmp olt", u, build.number(math.inf, x.type))
    )
    result = build.fadd(_positive_log(build, u), build.select(inside, lost, zero))
    result = _log_limits(build, u, result)
    return build.select(build.compare("fcmp oeq", x, zero), x, result)


_TANH_FLOAT = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)


def tanh(self: Any, x: Value) -> Value:
    if x.type == "double":
        return self.externals.function(self.build, "tanh", x)
    build: Builder = self.build
    one, two = build.number(1.0, x.type), build.number(2.0, x.type)
    magnitude = build.fabs(x)
    square = build.fmul(x, x)
    series = _polynomial(build, square, _TANH_FLOAT, build.fmul(square, square))
    small = build.multiply_add(build.fmul(series, square), magnitude, magnitude)
    # exp(2|x|) is only needed where it is neither tiny nor infinite: beyond 9.02 tanh rounds to 1.
    doubled = build.fadd(magnitude, magnitude)
    limit = build.number(20.0, x.type)
    _, shifted, q = _reduce_exp(build, build.select(build.compare("fcmp ogt", doubled, limit), limit, doubled))
    grown = _scaled(build, build.fadd(q, one), shifted)
    large = build.fsub(one, build.fdiv(two, build.fadd(grown, one)))
    # Of NaN the small part: scaling by the bits of a NaN may make a number of it.
    result = build.select(build.compare("fcmp oge", magnitude, build.number(0.625, x.type)), large, small)
    return build.copysign(result, x)


def sigmoid(self: Any, x: Value) -> Value:
    build: Builder = self.build
    one = build.number(1.0, x.type)
    return build.fdiv(one, build.fadd(one, exp(self, build.fneg(x))))


# N. Juffa, https://stackoverflow.com/questions/35148198
_ERF_SMALL = (
    -5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1,
)  # fmt: skip


def erf(self: Any, x: Value) -> Value:
    if x.type == "double":
        return self.externals.function(self.build, "erf", x)
    build: Builder = self.build

    def number(value: float) -> Value:
        return build.number(value, x.type)

    t = build.fabs(x)
    s = build.fmul(x, x)
    small = build.multiply_add(_polynomial(build, s, _ERF_SMALL, build.fmul(s, s)), x, x)
    # erf(4) rounds to 1; the bound keeps the polynomial finite.
    t = build.select(build.compare("fcmp ogt", t, number(4.0)), number(4.0), t)
    s = build.fmul(t, t)
    r = build.multiply_add(number(-1.72853470e-5), t, number(3.83197126e-4))
    u = build.multiply_add(number(-3.88396438e-3), t, number(2.42546219e-2))
    r = build.multiply_add(r, s, u)
    for coefficient in (-1.06777877e-1, -6.34846687e-1, -1.28717512e-1):
        r = build.multiply_add(r, t, number(coefficient))
    r = build.multiply_add(r, t, build.fneg(t))
    _, shifted, q = _reduce_exp(build, r)
    decayed = _scaled(build, build.fadd(q, number(1.0)), shifted)
    large = build.copysign(build.fsub(number(1.0), decayed), x)
    return build.select(build.compare("fcmp ogt", t, number(0.927734375)), large, small)


# Minimax fits of our own (Lawson's algorithm): log2(2 Phi(-t)) / t, weighted by Phi(-t), for 0 <= t <= 4.5, falling
# steadily beyond, and 2**f / 2 for |f| <= 1/2.
_LOG_NDTR = (
    -2.371128630329622e-06, 3.4606015105964616e-05, -1.6697467071935534e-04, -1.755385601427406e-04,
    7.1043954230844975e-03, -5.2518464624881744e-02, -4.5920270681381226e-01, -1.1511056423187256,
)  # fmt: skip
_HALF_EXP2 = (
    6.632363656535745e-04, 4.835756495594978e-03, 2.7753667905926704e-02, 1.2011121213436127e-01,
    3.4657350182533264e-01, 0.5,
)  # fmt: skip


def gelu(self: Any, x: Value) -> Value:
    """`x * Phi(x)` as `max(x, 0) - |x| Phi(-|x|)`. float32: absolute error 7e-8 below zero, 2 ulp above.

    One exponential of one polynomial: half the work of `x * (1 + erf(x / sqrt(2))) / 2`, whose sum also cancels.
    Minus infinity gives NaN, as eager's product of it and zero does, and numbers far below zero give -0.
    """
    build: Builder = self.build

    def number(value: float) -> Value:
        return build.number(value, x.type)

    if x.type == "double":
        scaled = build.fmul(x, number(-math.sqrt(0.5)))
        return build.fmul(build.fmul(number(0.5), x), self.externals.function(build, "erfc", scaled))
    t = build.fabs(x)
    t = build.select(build.compare("fcmp ogt", t, number(13.0)), number(13.0), t)  # there Phi is 0 in float32
    power = build.fmul(_polynomial(build, t, _LOG_NDTR, build.fmul(t, t)), t)
    magic = number(_FLOAT[x.type].magic)
    shifted = build.fadd(power, magic)
    count = build.fsub(shifted, magic)
    half = _polynomial(build, build.fsub(power, count), _HALF_EXP2)
    if self.scales and x.lanes * _BYTES[x.type] >= 16:
        tail = _scalef(build, half, count)
    else:
        vanishes = build.compare("fcmp olt", power, number(-124.0))  # the sum of exponents would wrap
        tail = build.select(vanishes, number(0.0), _scaled(build, half, shifted))
    positive = build.select(build.compare("fcmp olt", x, number(0.0)), build.fmul(x, number(0.0)), x)
    return build.multiply_add(build.fneg(t), tail, positive)


_SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
#: Up to here the reduction in float64 is good to 2**-60; larger arguments (and NaN) are left to the library.
_REDUCIBLE = 1.0e6


def _sine(self: Any, x: Value, name: str) -> Value:
    if x.type == "double":
        return self.externals.function(self.build, name, x)
    build: Builder = self.build
    kind = _FLOAT["double"]
    wide = build.convert("fpext", x, "double")
    magic = build.number(kind.magic, "double")
    shifted = build.fadd(build.fmul(wide, build.number(2.0 / math.pi, "double")), magic)
    count = build.fsub(shifted, magic)
    # pi/2 in two parts (fdlibm): count times the first, of 33 bits, is exact.
    rest = build.fsub(wide, build.fmul(count, build.number(1.57079632673412561417e00, "double")))
    rest = build.fsub(rest, build.fmul(count, build.number(6.07710050650619224932e-11, "double")))
    quadrant = build.convert("trunc", build.convert("bitcast", shifted, "i64"), "i32")
    if name == "cos":
        quadrant = build.binary("add", quadrant, build.integer(1, "i32"))
    r = build.convert("fptrunc", rest, "float")
    z = build.fmul(r, r)
    sine = build.multiply_add(build.fmul(_polynomial(build, z, _SIN), z), r, r)
    cosine = build.multiply_add(z, build.number(-0.5, "float"), build.number(1.0, "float"))
    cosine = build.multiply_add(build.fmul(_polynomial(build, z, _COS), z), z, cosine)
    one = build.integer(1, "i32")
    odd = build.compare("icmp ne", build.binary("and", quadrant, one), build.integer(0, "i32"))
    value = build.convert("bitcast", build.select(odd, cosine, sine), "i32")
    sign = build.binary("shl", build.binary("and", quadrant, build.integer(2, "i32")), build.integer(30, "i32"))
    fast = build.convert("bitcast", build.binary("xor", value, sign), "float")
    if name == "sin":
        fast = build.select(build.compare("fcmp oeq", x, build.number(0.0, "float")), x, fast)  # keeps -0
    far = build.compare("fcmp uge", build.fabs(x), build.number(_REDUCIBLE, "float"))
    return rarely(self, far, fast, lambda: self.externals.function(build, name, x))


def rarely(self: Any, condition: Value, usual: Value, otherwise: Callable[[], Value]) -> Value:
    """`usual`, or in a branch taken when any lane meets `condition`, `otherwise()` in every lane."""
    build: Builder = self.build
    type = vector(usual.type, usual.lanes)
    slot = build.allocate(type, 64)
    build.effect(f"store {usual}, ptr {slot}")
    build.open_block()
    build.effect(f"store {otherwise()}, ptr {slot}")
    build.close_block(self.any_lane(condition))
    return build.here(usual.type, usual.lanes, f"load {type}, ptr {slot}")


def fmod(self: Any, a: Value, b: Value) -> Value:
    """What is left of a, with its sign. Sleef answers NaN where a quotient of doubles overflows; libm is asked then."""
    build: Builder = self.build
    a, b = build.same_lanes(a, b)
    usual = self.externals.function(build, "fmod", a, b)
    if a.type != "double":
        return usual
    finite = build.compare("fcmp olt", build.fabs(a), build.number(math.inf, a.type))
    divides = build.compare("fcmp one", b, build.number(0.0, a.type))
    wrong = build.binary("and", build.is_nan(usual), build.binary("and", finite, divides))
    return rarely(self, wrong, usual, lambda: self.externals.lane_by_lane(build, "fmod", a, b))


def sin(self: Any, x: Value) -> Value:
    return _sine(self, x, "sin")


def cos(self: Any, x: Value) -> Value:
    return _sine(self, x, "cos")


INLINE: dict[str, Callable[[object, Value], Value]] = {
    "exp": exp, "expm1": expm1, "log": log, "log1p": log1p, "tanh": tanh, "sigmoid": sigmoid, "erf": erf,
    "gelu": gelu, "sin": sin, "cos": cos,
}  # fmt: skip
