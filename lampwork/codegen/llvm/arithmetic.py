"""SCALARS of the loop IR as LLVM instructions, by table. Transcendental functions are in `math.py`.

Each emitter takes `(Arithmetic, dtype of the operands, values)`. Float emitters see float32 and float64 only: operands
of half types are converted, and a half result rounded, around them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from lampwork.codegen.llvm import math as functions
from lampwork.codegen.llvm.builder import Builder, Value
from lampwork.codegen.llvm.casts import HALF, cast
from lampwork.codegen.llvm.external import Externals
from lampwork.codegen.llvm.types import BITS, REGISTER, literal, vector
from lampwork.errors import CompileError
from lampwork.ir.dtype import FLOATING, SIGNED
from lampwork.ir.loops import FIRSTS

COMPARISONS = {
    "eq": ("fcmp oeq", "icmp eq", "icmp eq"), "ne": ("fcmp une", "icmp ne", "icmp ne"),
    "lt": ("fcmp olt", "icmp slt", "icmp ult"), "le": ("fcmp ole", "icmp sle", "icmp ule"),
    "gt": ("fcmp ogt", "icmp sgt", "icmp ugt"), "ge": ("fcmp oge", "icmp sge", "icmp uge"),
}  # fmt: skip


class Arithmetic:
    """Emits operations into `build`. `native_half`: the machine converts float16; `scales`: it has AVX-512's scalef."""

    def __init__(self, build: Builder, externals: Externals, native_half: bool, scales: bool) -> None:
        self.build, self.externals, self.native_half, self.scales = build, externals, native_half, scales

    def cast(self, value: Value, source: str, target: str) -> Value:
        return cast(self.build, value, source, target, self.native_half)

    def constant(self, value: bool | int | float, dtype: str) -> Value:
        return Value(literal(value, dtype), REGISTER[dtype])

    def operation(self, op: str, dtype: str, result: str, args: tuple[Value, ...]) -> Value:
        """`op` on operands of type `dtype` (of the last two, for "where"); the result has type `result`."""
        build = self.build
        if op == "cast":
            return self.cast(args[0], dtype, result)
        if op == "where":
            return build.select(*args)
        if op == "promised":
            return args[0]
        if op == "bitcast":
            return build.convert("bitcast", args[0], REGISTER[result])
        if dtype in HALF:
            wide = tuple(self.cast(arg, dtype, "float32") for arg in args)
            if result in HALF:
                return self.cast(self.operation(op, "float32", "float32", wide), "float32", result)
            return self.operation(op, "float32", result, wide)
        if op in COMPARISONS:
            floats, signed, unsigned = COMPARISONS[op]
            opcode = floats if dtype in FLOATING else signed if dtype in SIGNED else unsigned
            return build.compare(opcode, *args)
        emit = emitters(dtype).get(op)
        if emit is None:
            raise CompileError("generate", f"operation {op} is not defined on {dtype}")
        return emit(self, dtype, *args)

    def combine(self, op: str, dtype: str, a: Value, b: Value) -> Value:
        """One step of reduction `op`."""
        if op in FIRSTS:  # of equal ones, `maximum` gives the second
            return self.operation(COMBINE[FIRSTS[op]], dtype, dtype, (b, a))
        return self.operation(COMBINE[op], dtype, dtype, (a, b))

    def identity(self, op: str, dtype: str) -> Value:
        """The value that reduction `op` starts from."""
        if "max" in op or "min" in op:
            lowest = "max" in op
            if dtype in FLOATING:
                return self.constant(float("-inf") if lowest else float("inf"), dtype)
            if dtype == "bool":
                return self.constant(not lowest, dtype)
            bits = BITS[REGISTER[dtype]]
            if dtype in SIGNED:
                return self.constant(-(1 << (bits - 1)) if lowest else (1 << (bits - 1)) - 1, dtype)
            return self.constant(0 if lowest else (1 << bits) - 1, dtype)
        return self.constant(1 if op in ("prod", "all") else 0, dtype)

    def any_lane(self, condition: Value) -> Value:
        """Whether any lane of an i1 vector is set."""
        if condition.lanes == 1:
            return condition
        type = f"i{condition.lanes}"
        bits = self.build.pure(type, 1, f"bitcast {condition} to {type}", condition)
        return self.build.pure("i1", 1, f"icmp ne {bits}, 0", bits)


COMBINE = {
    "sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and",
}  # fmt: skip

Emitter = Callable[..., Value]


def _opcode(opcode: str) -> Emitter:
    return lambda self, dtype, a, b: self.build.binary(opcode, a, b)


def _intrinsic(name: str) -> Emitter:
    return lambda self, dtype, *args: self.build.intrinsic(name, *args)


def _function(emit: Callable[..., Value]) -> Emitter:
    return lambda self, dtype, *args: emit(self, *args)


def _external(name: str) -> Emitter:
    return lambda self, dtype, *args: self.externals.function(self.build, name, *args)


# -- floats -----------------------------------------------------------------------------------------------------------


def _float_maximum(self: Arithmetic, dtype: str, a: Value, b: Value) -> Value:
    build = self.build
    larger = build.select(build.compare("fcmp ogt", a, b), a, b)  # b where either is NaN
    return build.select(build.is_nan(a), a, larger)


def _float_minimum(self: Arithmetic, dtype: str, a: Value, b: Value) -> Value:
    build = self.build
    smaller = build.select(build.compare("fcmp olt", a, b), a, b)
    return build.select(build.is_nan(a), a, smaller)


def _fmax(self: Arithmetic, dtype: str, a: Value, b: Value) -> Value:
    build = self.build
    larger = build.select(build.compare("fcmp olt", a, b), b, a)  # a where either is NaN, or both are zero
    return build.select(build.is_nan(a), b, larger)


def _fmin(self: Arithmetic, dtype: str, a: Value, b: Value) -> Value:
    build = self.build
    smaller = build.select(build.compare("fcmp ogt", a, b), b, a)
    return build.select(build.is_nan(a), b, smaller)


def _float_sign(self: Arithmetic, dtype: str, a: Value) -> Value:
    build = self.build
    zero = build.number(0.0, a.type)
    positive = build.from_bool(build.compare("fcmp ogt", a, zero), a.type)
    return build.fsub(positive, build.from_bool(build.compare("fcmp olt", a, zero), a.type))


def _float_mod(self: Arithmetic, dtype: str, a: Value, b: Value) -> Value:
    """The remainder with the sign of b, as Python's %."""
    build = self.build
    remainder = functions.fmod(self, a, b)
    zero = build.number(0.0, a.type)
    opposite = build.binary("xor", build.compare("fcmp olt", remainder, zero), build.compare("fcmp olt", b, zero))
    adjust = build.binary("and", opposite, build.compare("fcmp une", remainder, zero))
    return build.select(adjust, build.fadd(remainder, b), remainder)


def _float_floordiv(self: Arithmetic, dtype: str, a: Value, b: Value) -> Value:
    """As c10::div_floor_floating."""
    build = self.build
    zero, one = build.number(0.0, a.type), build.number(1.0, a.type)
    remainder = functions.fmod(self, a, b)
    quotient = build.fdiv(build.fsub(a, remainder), b)
    opposite = build.binary("xor", build.compare("fcmp olt", remainder, zero), build.compare("fcmp olt", b, zero))
    adjust = build.binary("and", opposite, build.compare("fcmp une", remainder, zero))
    quotient = build.select(adjust, build.fsub(quotient, one), quotient)
    floor = build.intrinsic("floor", quotient)
    above = build.compare("fcmp ogt", build.fsub(quotient, floor), build.number(0.5, a.type))
    floor = build.select(above, build.fadd(floor, one), floor)
    plain = build.fdiv(a, b)
    signed_zero = build.copysign(zero, plain)
    result = build.select(build.compare("fcmp une", quotient, zero), floor, signed_zero)
    # A quotient that overflows is infinite; the rounding of the difference is not to make it NaN.
    infinite = build.number(float("inf"), a.type)
    overflows = build.binary(
        "and",
        build.compare("fcmp oeq", build.fabs(plain), infinite),
        build.binary("or", build.compare("fcmp olt", build.fabs(a), infinite), build.compare("fcmp oeq", b, zero)),
    )
    return build.select(overflows, plain, result)


def _float_pow(self: Arithmetic, dtype: str, a: Value, b: Value) -> Value:
    """`pow`; the constant exponents that ATen computes with products and roots are done so."""
    build = self.build
    if b.is_constant and b.lanes == 1:
        for exponent, emit in _POWERS.items():
            if b.text == build.number(exponent, a.type).text:
                return emit(build, a)
    return self.externals.function(build, "pow", a, b)


_POWERS: dict[float, Callable[[Builder, Value], Value]] = {
    2.0: lambda build, a: build.fmul(a, a),
    3.0: lambda build, a: build.fmul(build.fmul(a, a), a),
    -2.0: lambda build, a: build.fdiv(build.number(1.0, a.type), build.fmul(a, a)),
    -1.0: lambda build, a: build.fdiv(build.number(1.0, a.type), a),
}


def _nextafter(self: Arithmetic, dtype: str, a: Value, b: Value) -> Value:
    build = self.build
    type = f"i{BITS[a.type]}"
    bits = build.convert("bitcast", a, type)
    up = build.compare("fcmp olt", a, b)
    positive = build.compare("fcmp ogt", a, build.number(0.0, a.type))
    away = build.compare("icmp eq", up, positive)  # the magnitude grows
    moved = build.binary("add", bits, build.select(away, build.integer(1, type), build.integer(-1, type)))
    sign = build.integer(1 << (BITS[a.type] - 1), type)
    smallest = build.select(up, build.integer(1, type), build.binary("or", sign, build.integer(1, type)))
    zero = build.compare("fcmp oeq", a, build.number(0.0, a.type))
    result = build.convert("bitcast", build.select(zero, smallest, moved), a.type)
    result = build.select(build.compare("fcmp oeq", a, b), b, result)
    return build.select(build.compare("fcmp uno", a, b), build.fadd(a, b), result)


def _asinh(self: Arithmetic, dtype: str, a: Value) -> Value:
    """Sleef squares its argument, which overflows: the logarithm of the double is as exact there."""
    build = self.build
    size = build.fabs(a)
    return _log_of_double_beyond(self, a, size, build.copysign(_log_of_double(self, size), a), "asinh")


def _acosh(self: Arithmetic, dtype: str, a: Value) -> Value:
    return _log_of_double_beyond(self, a, a, _log_of_double(self, a), "acosh")


def _log_of_double(self: Arithmetic, a: Value) -> Value:
    logarithm = self.externals.function(self.build, "log", a)
    return self.build.fadd(logarithm, self.build.number(math.log(2.0), a.type))


def _log_of_double_beyond(self: Arithmetic, a: Value, size: Value, far: Value, name: str) -> Value:
    limit = self.build.number(2.0 ** (60 if a.type == "float" else 500), a.type)
    is_far = self.build.compare("fcmp ogt", size, limit)
    return self.build.select(is_far, far, self.externals.function(self.build, name, a))


def _fma(self: Arithmetic, dtype: str, a: Value, b: Value, c: Value) -> Value:
    if self.externals.target == "sse4":  # which has no such instruction
        return self.externals.lane_by_lane(self.build, "fma", *self.build.same_lanes(a, b, c))
    return self.build.intrinsic("fma", a, b, c)


def _float_test(test: Callable[[Builder, Value], Value]) -> Emitter:
    return lambda self, dtype, a: test(self.build, a)


def _signbit(build: Builder, a: Value) -> Value:
    type = f"i{BITS[a.type]}"
    return build.compare("icmp slt", build.convert("bitcast", a, type), build.integer(0, type))


def _reciprocal(self: Arithmetic, dtype: str, a: Value) -> Value:
    return self.build.fdiv(self.build.number(1.0, a.type), a)


FLOATS: dict[str, Emitter] = {
    "add": _opcode("fadd"), "sub": _opcode("fsub"), "mul": _opcode("fmul"), "div": _opcode("fdiv"),
    "floordiv": _float_floordiv, "mod": _float_mod, "fmod": lambda self, dtype, a, b: functions.fmod(self, a, b),
    "neg": lambda self, dtype, a: self.build.fneg(a), "abs": _intrinsic("fabs"), "sign": _float_sign,
    "reciprocal": _reciprocal, "minimum": _float_minimum, "maximum": _float_maximum, "fmin": _fmin, "fmax": _fmax,
    "pow": _float_pow, "sqrt": _intrinsic("sqrt"),
    "rsqrt": lambda self, dtype, a: _reciprocal(self, dtype, self.build.intrinsic("sqrt", a)),
    "floor": _intrinsic("floor"), "ceil": _intrinsic("ceil"), "trunc": _intrinsic("trunc"),
    "round": _intrinsic("roundeven"), "copysign": lambda self, dtype, a, b: self.build.copysign(a, b),
    "nextafter": _nextafter, "fma": _fma,
    "isnan": _float_test(lambda build, a: build.is_nan(a)),
    "isinf": _float_test(lambda b, a: b.compare("fcmp oeq", b.fabs(a), b.number(float("inf"), a.type))),
    "signbit": _float_test(_signbit),
    **{name: _function(emit) for name, emit in functions.INLINE.items()},
    **{name: _external(name) for name in (
        "exp2", "log2", "log10", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "atanh", "erfc", "lgamma",
        "hypot",
    )},
    "asinh": _asinh, "acosh": _acosh,
}  # fmt: skip


# -- integers ---------------------------------------------------------------------------------------------------------


def _safe_divisor(self: Arithmetic, dtype: str, a: Value, b: Value) -> Value:
    """`b`, or 1 where dividing would trap: by zero (any result), and the least integer by -1 (wraps, remainder 0)."""
    build = self.build
    if b.is_constant and b.lanes == 1 and b.text not in ("0", "-1"):
        return b
    one = build.integer(1, b.type)
    traps = build.compare("icmp eq", b, build.integer(0, b.type))
    if dtype in SIGNED:
        least = build.compare("icmp eq", a, build.integer(-(1 << (BITS[a.type] - 1)), a.type))
        minus = build.compare("icmp eq", b, build.integer(-1, b.type))
        traps = build.binary("or", traps, build.binary("and", least, minus))
    return build.select(traps, one, b)


def _quotient(self: Arithmetic, dtype: str, a: Value, b: Value) -> Value:
    return self.build.binary("sdiv" if dtype in SIGNED else "udiv", a, _safe_divisor(self, dtype, a, b))


def _remainder(self: Arithmetic, dtype: str, a: Value, b: Value) -> Value:
    return self.build.binary("srem" if dtype in SIGNED else "urem", a, _safe_divisor(self, dtype, a, b))


def _floor_adjusted(self: Arithmetic, a: Value, b: Value) -> tuple[Value, Value, Value]:
    """Divisor, remainder rounded to zero, and where the floor lies one below the quotient rounded to zero."""
    build = self.build
    divisor = _safe_divisor(self, "int64", a, b)
    remainder = build.binary("srem", a, divisor)
    zero = build.integer(0, a.type)
    opposite = build.compare("icmp slt", build.binary("xor", remainder, divisor), zero)
    return divisor, remainder, build.binary("and", opposite, build.compare("icmp ne", remainder, zero))


def _integer_floordiv(self: Arithmetic, dtype: str, a: Value, b: Value) -> Value:
    if dtype not in SIGNED:
        return _quotient(self, dtype, a, b)
    divisor, _, adjust = _floor_adjusted(self, a, b)
    quotient = self.build.binary("sdiv", a, divisor)
    return self.build.binary("sub", quotient, self.build.convert("zext", adjust, a.type))


def _integer_mod(self: Arithmetic, dtype: str, a: Value, b: Value) -> Value:
    if dtype not in SIGNED:
        return _remainder(self, dtype, a, b)
    divisor, remainder, adjust = _floor_adjusted(self, a, b)
    return self.build.select(adjust, self.build.binary("add", remainder, divisor), remainder)


def _integer_minmax(larger: bool) -> Emitter:
    def emit(self: Arithmetic, dtype: str, a: Value, b: Value) -> Value:
        order = ("sgt" if larger else "slt") if dtype in SIGNED else ("ugt" if larger else "ult")
        return self.build.select(self.build.compare(f"icmp {order}", a, b), a, b)

    return emit


def _integer_abs(self: Arithmetic, dtype: str, a: Value) -> Value:
    if dtype not in SIGNED:
        return a
    build = self.build
    return build.select(build.compare("icmp slt", a, build.integer(0, a.type)), _integer_neg(self, dtype, a), a)


def _integer_neg(self: Arithmetic, dtype: str, a: Value) -> Value:
    return self.build.binary("sub", self.build.integer(0, a.type), a)


def _integer_sign(self: Arithmetic, dtype: str, a: Value) -> Value:
    build = self.build
    zero = build.integer(0, a.type)
    if dtype not in SIGNED:
        return build.convert("zext", build.compare("icmp ne", a, zero), a.type)
    positive = build.convert("zext", build.compare("icmp sgt", a, zero), a.type)
    return build.binary("sub", positive, build.convert("zext", build.compare("icmp slt", a, zero), a.type))


def _shift(opcode: str) -> Emitter:
    """Shifts whose count may lie out of range: left gives 0; right gives 0, or -1 for negative signed values."""

    def emit(self: Arithmetic, dtype: str, a: Value, b: Value) -> Value:
        build = self.build
        bits = BITS[a.type]
        inside = build.compare("icmp ult", b, build.integer(bits, b.type))
        if opcode == "right" and dtype in SIGNED:
            return build.binary("ashr", a, build.select(inside, b, build.integer(bits - 1, b.type)))
        count = build.select(inside, b, build.integer(0, b.type))
        shifted = build.binary("shl" if opcode == "left" else "lshr", a, count)
        return build.select(inside, shifted, build.integer(0, a.type))

    return emit


def _constant_power(build: Builder, base: Value, exponent: int) -> Value:
    result, square = None, base
    while exponent:
        if exponent & 1:
            result = square if result is None else build.binary("mul", result, square)
        square = build.binary("mul", square, square) if exponent > 1 else square
        exponent >>= 1
    return build.integer(1, base.type) if result is None else result


def _integer_pow(self: Arithmetic, dtype: str, base: Value, exponent: Value) -> Value:
    """By squaring, modulo the type's range. Negative exponents: 1 for 1, +-1 for -1, else 0 (as torch)."""
    build = self.build
    zero, one = build.integer(0, base.type), build.integer(1, base.type)
    if exponent.is_constant and exponent.lanes == 1 and 0 <= int(exponent.text) <= 64:
        return _constant_power(build, base, int(exponent.text))
    base, exponent, zero, one = build.same_lanes(base, exponent, zero, one)
    negative = build.compare("icmp slt", exponent, zero) if dtype in SIGNED else None
    count = exponent if negative is None else build.select(negative, zero, exponent)
    start = build.levels[-1].label
    type = vector(base.type, base.lanes)
    loop, done = build.fresh_label("pow"), build.fresh_label("done")
    names = [build.fresh() for _ in range(3)]
    depth = build.depth
    result, square, left = (Value(name, base.type, base.lanes, depth) for name in names)
    following = [build.fresh() for _ in range(3)]
    build.effect(f"br label %{loop}")
    build.start_block(loop)
    for value, initial, after in zip((result, square, left), (one, base, count), following):
        build.effect(f"{value.text} = phi {type} [ {initial.text}, %{start} ], [ {after}, %{loop} ]")
    odd = build.here("i1", base.lanes, f"trunc {left} to {vector('i1', base.lanes)}")
    product = build.here(base.type, base.lanes, f"mul {result}, {square.text}")
    build.effect(f"{following[0]} = select {odd}, {product}, {result}")
    build.effect(f"{following[1]} = mul {square}, {square.text}")
    build.effect(f"{following[2]} = lshr {left}, {one.text}")
    more = build.here("i1", base.lanes, f"icmp ne {type} {following[2]}, {zero.text}")
    if base.lanes > 1:
        bits = build.here(f"i{base.lanes}", 1, f"bitcast {more} to i{base.lanes}")
        more = build.here("i1", 1, f"icmp ne {bits}, 0")
    build.effect(f"br {more}, label %{loop}, label %{done}")
    build.start_block(done)
    power = Value(following[0], base.type, base.lanes, depth)
    if negative is None:
        return power
    minus_one = build.integer(-1, base.type)
    odd_exponent = build.compare("icmp ne", build.binary("and", exponent, one), zero)
    of_minus_one = build.select(odd_exponent, minus_one, one)
    inverse = build.select(build.compare("icmp eq", base, minus_one), of_minus_one, zero)
    inverse = build.select(build.compare("icmp eq", base, one), one, inverse)
    return build.select(negative, inverse, power)


def _integer_not(self: Arithmetic, dtype: str, a: Value) -> Value:
    return self.build.binary("xor", a, self.build.integer(-1, a.type))


def _never(self: Arithmetic, dtype: str, a: Value) -> Value:
    return self.build.widen(self.build.boolean(False), a.lanes)


INTEGERS: dict[str, Emitter] = {
    "add": _opcode("add"), "sub": _opcode("sub"), "mul": _opcode("mul"),
    "floordiv": _integer_floordiv, "truncdiv": _quotient, "mod": _integer_mod, "fmod": _remainder,
    "neg": _integer_neg, "abs": _integer_abs, "sign": _integer_sign,
    "minimum": _integer_minmax(False), "maximum": _integer_minmax(True),
    "fmin": _integer_minmax(False), "fmax": _integer_minmax(True),
    "pow": _integer_pow, "and": _opcode("and"), "or": _opcode("or"), "xor": _opcode("xor"), "not": _integer_not,
    "shift_left": _shift("left"), "shift_right": _shift("right"),
    "floor": lambda self, dtype, a: a, "ceil": lambda self, dtype, a: a, "trunc": lambda self, dtype, a: a,
    "round": lambda self, dtype, a: a, "isnan": _never, "isinf": _never,
    "signbit": lambda self, dtype, a: (
        self.build.compare("icmp slt", a, self.build.integer(0, a.type)) if dtype in SIGNED else _never(self, dtype, a)
    ),
}  # fmt: skip

#: What `operation` writes by itself, and what is no operation on a CPU: there ATen draws, and looks at indices.
WRITTEN = frozenset({"cast", "where", "bitcast", "promised", *COMPARISONS})
ELSEWHERE = frozenset({"asserted", "random"})

BOOLS: dict[str, Emitter] = {
    "add": _opcode("or"), "mul": _opcode("and"), "sub": _opcode("xor"),
    "maximum": _opcode("or"), "minimum": _opcode("and"), "and": _opcode("and"), "or": _opcode("or"),
    "fmax": _opcode("or"), "fmin": _opcode("and"), "abs": lambda self, dtype, a: a, "sign": lambda self, dtype, a: a,
    "xor": _opcode("xor"), "not": lambda self, dtype, a: self.build.binary("xor", a, self.build.boolean(True)),
    "isnan": _never, "isinf": _never, "signbit": _never,
}  # fmt: skip


def emitters(dtype: str) -> dict[str, Emitter]:
    """By name, what writes operators on operands of `dtype` (of half types: on float32)."""
    return FLOATS if dtype in FLOATING else BOOLS if dtype == "bool" else INTEGERS
