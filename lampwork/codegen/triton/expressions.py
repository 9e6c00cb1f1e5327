"""SCALARS of the loop IR as Triton expressions, by table.

An emitter takes the code under construction (`Lines`), the operands' type and their texts, and returns the text of the
result; what it needs in between becomes lines of its own. Operands are names or literals. Float emitters see float32
and float64 only: operands of half types are converted, and a half result rounded, around them.

Results are those of ATen's CUDA kernels where IEEE-754 leaves a choice: divisions and roots are rounded correctly
(Triton's `/` and `sqrt` are approximate for float32), functions are libdevice's.
"""

from __future__ import annotations

from collections.abc import Callable
from math import copysign, frexp
from struct import pack, unpack
from typing import Final, Protocol

from lampwork.errors import CompileError
from lampwork.ir.dtype import FLOATING, ITEM_SIZE_BYTES, SIGNED
from lampwork.ir.random import KEY_STEP, MULTIPLIER, ROUNDS

#: Element types as Triton names them, in code and (pointers) in signatures.
TYPES: Final = {
    "float64": "tl.float64", "float32": "tl.float32", "float16": "tl.float16", "bfloat16": "tl.bfloat16",
    "int64": "tl.int64", "int32": "tl.int32", "int16": "tl.int16", "int8": "tl.int8",
    "uint64": "tl.uint64", "uint32": "tl.uint32", "uint16": "tl.uint16", "uint8": "tl.uint8", "bool": "tl.int1",
    "float8_e4m3fn": "tl.uint8", "float8_e5m2": "tl.uint8",
}  # fmt: skip
POINTERS: Final = {
    "float64": "*fp64", "float32": "*fp32", "float16": "*fp16", "bfloat16": "*bf16",
    "int64": "*i64", "int32": "*i32", "int16": "*i16", "int8": "*i8",
    "uint64": "*u64", "uint32": "*u32", "uint16": "*u16", "uint8": "*u8", "bool": "*i1",
    "float8_e4m3fn": "*u8", "float8_e5m2": "*u8",
}  # fmt: skip
HALF: Final = ("float16", "bfloat16")
#: Integer types as libdevice names them in `float2int_rz` and the like.
_TRUNCATED: Final = {"int32": "int", "int64": "ll", "uint64": "ull"}
COMPARISONS: Final = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
INFIX: Final = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^", **COMPARISONS}


class Lines(Protocol):
    """Where emitters put intermediate results."""

    def name(self, text: str) -> str:
        """A name whose value is the expression `text` (the same for the same text)."""

    def helper(self, name: str) -> str:
        """The function `name` of `HELPERS`, which the module then has."""

    def block(self, lines: tuple[str, ...], result: str) -> str:
        """The name `result` stands for after `lines`, in which {0}, {1}, ... are fresh names."""


def literal(value: bool | int | float, dtype: str) -> str:
    """A literal that takes the type of the other operand."""
    if dtype == "bool":
        return "True" if value else "False"
    if dtype in FLOATING:
        value = float(value)
        if value != value:
            return 'float("nan")'
        if value in (float("inf"), float("-inf")):
            return f'float("{"" if value > 0 else "-"}inf")'
        return repr(value) if value >= 0 and repr(value)[0] != "-" else f"({value!r})"
    bits = 8 * ITEM_SIZE_BYTES[dtype]
    number = int(value) & ((1 << bits) - 1)
    if dtype in SIGNED and number >> (bits - 1):
        number -= 1 << bits
    return str(number) if number >= 0 else f"({number})"


def typed(value: bool | int | float, dtype: str) -> str:
    """A constant with a type of its own."""
    if _is_negative_zero(value, dtype):
        # Triton makes 0.0 of a literal -0.0.
        bits = 8 * ITEM_SIZE_BYTES[dtype]
        return f"tl.full([], {literal(1 << (bits - 1), f'int{bits}')}, tl.int{bits}).to({TYPES[dtype]}, bitcast=True)"
    return f"tl.full([], {literal(value, dtype)}, {TYPES[dtype]})"


def _is_negative_zero(value: bool | int | float, dtype: str) -> bool:
    return dtype in FLOATING and value == 0 and copysign(1.0, value) < 0


def cast(lines: Lines, value: str, source: str, target: str) -> str:
    """`value` of type `source` as `target`, as torch's `.to()` converts on CUDA."""
    if source == target:
        return value
    to = TYPES[target]
    if target == "bool":
        return lines.name(f"{value} != 0")
    if (source in HALF or target in HALF) and "float32" not in (source, target):
        # c10's half types convert through float.
        return cast(lines, lines.name(f"{value}.to(tl.float32)"), "float32", target)
    if source in FLOATING and target in ("int8", "int16", "uint8", "uint16", "uint32"):
        # Narrow integers keep the low bits of a wide one; the conversion of a negative float to uint8 is no undefined.
        wide = "int32" if target in ("int8", "int16") else "int64"
        return cast(lines, cast(lines, value, source, wide), wide, target)
    if source in ("float32", "float64") and target in _TRUNCATED:
        # libdevice converts NaN and numbers out of range as CUDA C++ does. `.to` of a constant NaN (0 / 0 of an empty
        # mean) is undefined in LLVM, and gave any number.
        return lines.name(f"libdevice.{'float' if source == 'float32' else 'double'}2{_TRUNCATED[target]}_rz({value})")
    return lines.name(f"{value}.to({to})")


def operation(lines: Lines, op: str, dtype: str, result: str, args: tuple[str, ...]) -> str:
    """`op` on operands of type `dtype` (of the last two, for "where"); the result has type `result`."""
    if op == "cast":
        return cast(lines, args[0], dtype, result)
    if op == "where":
        return lines.name(f"tl.where({', '.join(args)})")
    if op == "bitcast":
        if TYPES[dtype] == TYPES[result]:
            return args[0]
        return lines.name(f"{args[0]}.to({TYPES[result]}, bitcast=True)")
    if dtype in HALF:
        wide = tuple(arg if _is_literal(arg) else cast(lines, arg, dtype, "float32") for arg in args)
        if result in HALF:
            return cast(lines, operation(lines, op, "float32", "float32", wide), "float32", result)
        return operation(lines, op, "float32", result, wide)
    if op in COMPARISONS:
        return lines.name(f"{args[0]} {COMPARISONS[op]} {args[1]}")
    emit = emitters(dtype).get(op)
    if emit is None:
        raise CompileError("generate", f"operation {op} is not defined on {dtype}", op)
    return emit(lines, dtype, *args)


def takes_literal(op: str, dtype: str, place: int, value: bool | int | float) -> bool:
    """Whether operand `place` of `op` may be a literal of that value, given that another operand has the type."""
    if _is_negative_zero(value, dtype):
        return False
    if op == "where":
        return place > 0 and dtype not in HALF
    if op in ("minimum", "maximum"):
        return dtype == "float32" or dtype == "float64" and is_narrow(value)
    return op in INFIX and dtype != "bool" or op == "div" and dtype in ("float32", "float64")


def is_narrow(value: bool | int | float) -> bool:
    """Whether float32 holds it: functions of Triton's library take a literal for one of that type."""
    try:
        return value != value or unpack("f", pack("f", value))[0] == value
    except OverflowError:
        return False


def _is_literal(text: str) -> bool:
    return not text[0].isalpha() or text.startswith(("float(", "True", "False"))


Emitter = Callable[..., str]


def _infix(symbol: str) -> Emitter:
    return lambda lines, dtype, a, b: lines.name(f"{a} {symbol} {b}")


def _call(function: str) -> Emitter:
    return lambda lines, dtype, *args: lines.name(f"{function}({', '.join(args)})")


def _text(form: str) -> Emitter:
    """`form` with {a} and {b} for the operands and {t} for their type."""

    def emit(lines: Lines, dtype: str, a: str, b: str = "") -> str:
        return lines.name(form.format(a=a, b=b, t=TYPES[dtype]))

    return emit


# -- floats -----------------------------------------------------------------------------------------------------------


def _divide(lines: Lines, dtype: str, a: str, b: str) -> str:
    if _is_literal(b) and not b.startswith("float") and frexp(float(b.strip("()")))[0] in (0.5, -0.5):
        inverse = 1.0 / float(b.strip("()"))
        if 2.0**-126 <= abs(inverse) <= 2.0**126:
            return lines.name(f"{a} * {literal(inverse, dtype)}")  # as exact as the division
    return lines.name(f"tl.div_rn({a}, {b})" if dtype == "float32" else f"{a} / {b}")


def _reciprocal(lines: Lines, dtype: str, a: str) -> str:
    return _divide(lines, dtype, "1.0", a)


def _sqrt(lines: Lines, dtype: str, a: str) -> str:
    return lines.name(f"tl.sqrt_rn({a})" if dtype == "float32" else f"tl.sqrt({a})")


def _sigmoid(lines: Lines, dtype: str, a: str) -> str:
    power = lines.name(f"libdevice.exp({lines.name(f'-{a}')})")
    total = lines.name(f"1.0 + {power}")
    if dtype != "float32":
        return _reciprocal(lines, dtype, total)
    # A step of Newton's is as exact as the division, without its branch: 128 of these in a row, after a product, took
    # longer than the product. It makes NaN of infinity.
    rough = lines.name(f"1.0 / {total}")
    error = lines.name(f"tl.fma(-{total}, {rough}, 1.0)")
    return lines.name(f"tl.where({rough} > 0.0, tl.fma({rough}, {error}, {rough}), {rough})")


#: log2(2 Phi(-t)) / t for 0 <= t <= 4.5, falling steadily beyond: see codegen/llvm/math.py, which has the same.
_LOG_NDTR: Final = (
    -2.371128630329622e-06, 3.4606015105964616e-05, -1.6697467071935534e-04, -1.755385601427406e-04,
    7.1043954230844975e-03, -5.2518464624881744e-02, -4.5920270681381226e-01, -1.1511056423187256,
)  # fmt: skip


def _gelu(lines: Lines, dtype: str, a: str) -> str:
    """`max(a, 0) - |a| Phi(-|a|)` with one exponential, half the work of erf: absolute error below 2e-7.

    Of -inf it is NaN, as eager's, which multiplies -inf by 0.
    """
    if dtype == "float32":
        t = lines.name(f"tl.minimum(tl.abs({a}), 13.0, propagate_nan=tl.PropagateNan.ALL)")
        power = repr(_LOG_NDTR[0])
        for coefficient in _LOG_NDTR[1:]:
            power = lines.name(f"tl.fma({power}, {t}, {coefficient!r})")
        tail = lines.name(f"{lines.helper('two_to_the')}({lines.name(f'tl.fma({power}, {t}, -1.0)')})")
        # -0 beside what is not positive: gelu(-0) is -0.
        positive = lines.name(f"tl.where({a} > 0.0, {a}, {lines.name(typed(-0.0, dtype))})")
        factor = lines.name(f"tl.where({a} > 0.0, {t} * -1.0, {a})")
        return lines.name(f"tl.fma({factor}, {tail}, {positive})")
    erf = lines.name(f"libdevice.erf({lines.name(f'{a} * 0.7071067811865476')})")
    return lines.name(f"{lines.name(f'{a} * 0.5')} * {lines.name(f'1.0 + {erf}')}")


def summed_exp(lines: Lines, difference: str) -> str:
    """exp of float32 `difference` as a term of a sum that is at least 1, in three instructions instead of nine.

    Relative error |difference| * 2**-24 and an ulp or two; below 2**-126 it is 0. Where all differences are at most 0
    and one is 0, a sum of n terms is off by less than ln(n) * 2**-24 of it.
    """
    scaled = lines.name(f"{difference} * 1.4426950408889634")
    return lines.name(f"{lines.helper('two_to_the')}({scaled})")


def _opposite(lines: Lines, remainder: str, divisor: str) -> str:
    """Where a remainder rounded to zero is not the one that floor division leaves."""
    differ = lines.name(f"({remainder} < 0) != ({divisor} < 0)")
    return lines.name(f"({remainder} != 0) & {differ}")


def _float_mod(lines: Lines, dtype: str, a: str, b: str) -> str:
    remainder = lines.name(f"libdevice.fmod({a}, {b})")
    return lines.name(f"tl.where({_opposite(lines, remainder, b)}, {remainder} + {b}, {remainder})")


def _float_floordiv(lines: Lines, dtype: str, a: str, b: str) -> str:
    """As c10::div_floor_floating."""
    remainder = lines.name(f"libdevice.fmod({a}, {b})")
    quotient = _divide(lines, dtype, lines.name(f"{a} - {remainder}"), b)
    quotient = lines.name(f"tl.where({_opposite(lines, remainder, b)}, {quotient} - 1.0, {quotient})")
    floor = lines.name(f"tl.floor({quotient})")
    floor = lines.name(f"tl.where({quotient} - {floor} > 0.5, {floor} + 1.0, {floor})")
    plain = _divide(lines, dtype, a, b)
    zero = lines.name(f"libdevice.copysign({lines.name(typed(0, dtype))}, {plain})")
    result = lines.name(f"tl.where({quotient} != 0, {floor}, {zero})")
    return lines.name(f"tl.where({b} == 0, {plain}, {result})")


def _signbit(lines: Lines, dtype: str, a: str) -> str:
    bits = lines.name(f"{a}.to(tl.int{8 * ITEM_SIZE_BYTES[dtype]}, bitcast=True)")
    return lines.name(f"{bits} < 0")


_LIBDEVICE = (
    "exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh erf erfc"
    " lgamma hypot copysign nextafter fma fmod pow trunc"
).split()

FLOATS: Final[dict[str, Emitter]] = {
    **{name: _call(f"libdevice.{name}") for name in _LIBDEVICE},
    "add": _infix("+"), "sub": _infix("-"), "mul": _infix("*"), "div": _divide,
    "floordiv": _float_floordiv, "mod": _float_mod,
    "neg": _text("{a} * -1.0"),  # Triton's `-a` is `0 - a`, which is 0 for 0
    "abs": _call("tl.abs"),
    "sign": _text("({a} > 0).to({t}) - ({a} < 0).to({t})"), "reciprocal": _reciprocal,
    "minimum": _text("tl.minimum({a}, {b}, propagate_nan=tl.PropagateNan.ALL)"),
    "maximum": _text("tl.maximum({a}, {b}, propagate_nan=tl.PropagateNan.ALL)"),
    "fmin": _call("tl.minimum"), "fmax": _call("tl.maximum"),  # of one NaN and a number: the number
    "sqrt": _sqrt, "rsqrt": _call("libdevice.rsqrt"), "gelu": _gelu, "sigmoid": _sigmoid,
    "floor": _call("tl.floor"), "ceil": _call("tl.ceil"), "round": _call("libdevice.rint"),
    "isnan": _text("{a} != {a}"), "isinf": _text('tl.abs({a}) == float("inf")'), "signbit": _signbit,
}  # fmt: skip


def _coarse_exp(lines: Lines, dtype: str, a: str) -> str:
    return lines.name(f"tl.exp2({lines.name(f'{a} * 1.4426950408889634')})")


def _coarse_sigmoid(lines: Lines, dtype: str, a: str) -> str:
    power = lines.name(f"tl.exp2({lines.name(f'{a} * -1.4426950408889634')})")
    return lines.name(f"1.0 / {lines.name(f'1.0 + {power}')}")


#: The same for float32 values that are rounded to half types next, with a relative error below 2**-16 in a third of the
#: instructions: for kernels that are not bound by memory.
COARSE: Final[dict[str, Emitter]] = {
    "exp": _coarse_exp, "sigmoid": _coarse_sigmoid, "div": _text("{a} / {b}"), "reciprocal": _text("1.0 / {a}"),
}  # fmt: skip


# -- integers and bools -----------------------------------------------------------------------------------------------


def _integer_floordiv(lines: Lines, dtype: str, a: str, b: str) -> str:
    quotient = lines.name(f"{a} // {b}")
    if dtype not in SIGNED:
        return quotient
    opposite = _opposite(lines, lines.name(f"{a} % {b}"), b)
    return lines.name(f"{quotient} - {opposite}.to({TYPES[dtype]})")


def _integer_mod(lines: Lines, dtype: str, a: str, b: str) -> str:
    remainder = lines.name(f"{a} % {b}")
    if dtype not in SIGNED:
        return remainder
    return lines.name(f"tl.where({_opposite(lines, remainder, b)}, {remainder} + {b}, {remainder})")


def _integer_pow(lines: Lines, dtype: str, a: str, b: str) -> str:
    """By squaring. A negative exponent gives 0, but 1 and -1 are their own inverses."""
    bits = 8 * ITEM_SIZE_BYTES[dtype]
    exponent = b if dtype not in SIGNED else lines.name(f"tl.where({b} < 0, 0, {b})")
    power = lines.block(
        (
            f"{{0}} = {a} * 0 + 1",
            f"{{1}} = {a}",
            f"{{2}} = {exponent} + {a} * 0",
            f"for {{3}} in range(0, {bits}):",
            "    {0} = tl.where(({2} & 1) != 0, {0} * {1}, {0})",
            "    {1} = {1} * {1}",
            "    {2} = {2} >> 1",
        ),
        "{0}",
    )
    if dtype not in SIGNED:
        return power
    odd = lines.name(f"({b} & 1) != 0")
    inverse = lines.name(f"tl.where(({a} == 1) | (({a} == -1) & ({odd} == 0)), 1, tl.where({a} == -1, {a}, {a} * 0))")
    return lines.name(f"tl.where({b} < 0, {inverse}, {power})")


def _shift_left(lines: Lines, dtype: str, a: str, b: str) -> str:
    inside = _inside(lines, dtype, b)
    shifted = lines.name(f"{a} << {lines.name(f'tl.where({inside}, {b}, 0)')}")
    return lines.name(f"tl.where({inside}, {shifted}, 0)")


def _shift_right(lines: Lines, dtype: str, a: str, b: str) -> str:
    inside = _inside(lines, dtype, b)
    if dtype in SIGNED:
        most = 8 * ITEM_SIZE_BYTES[dtype] - 1
        return lines.name(f"{a} >> {lines.name(f'tl.where({inside}, {b}, {most})')}")
    return lines.name(f"tl.where({inside}, {a} >> {lines.name(f'tl.where({inside}, {b}, 0)')}, 0)")


def _inside(lines: Lines, dtype: str, amount: str) -> str:
    return lines.name(f"({amount} >= 0) & ({amount} < {8 * ITEM_SIZE_BYTES[dtype]})")


def _invert(lines: Lines, dtype: str, a: str) -> str:
    return lines.name(f"{a} ^ {literal(-1, dtype)}")


def _same(lines: Lines, dtype: str, a: str) -> str:
    return a


def _never(lines: Lines, dtype: str, a: str) -> str:
    return lines.name(f"{a} != {a}")


def _signed(signed: Emitter, unsigned: Emitter) -> Emitter:
    return lambda lines, dtype, *args: (signed if dtype in SIGNED else unsigned)(lines, dtype, *args)


INTEGERS: Final[dict[str, Emitter]] = {
    "add": _infix("+"), "sub": _infix("-"), "mul": _infix("*"),
    "floordiv": _integer_floordiv, "truncdiv": _infix("//"), "mod": _integer_mod, "fmod": _infix("%"),
    "neg": _text("0 - {a}"), "abs": _signed(_text("tl.where({a} < 0, 0 - {a}, {a})"), _same),
    "sign": _signed(_text("({a} > 0).to({t}) - ({a} < 0).to({t})"), _text("({a} > 0).to({t})")),
    "minimum": _call("tl.minimum"), "maximum": _call("tl.maximum"),
    "fmin": _call("tl.minimum"), "fmax": _call("tl.maximum"), "pow": _integer_pow,
    "and": _infix("&"), "or": _infix("|"), "xor": _infix("^"), "not": _invert,
    "shift_left": _shift_left, "shift_right": _shift_right,
    "floor": _same, "ceil": _same, "trunc": _same, "round": _same,
    "isnan": _never, "isinf": _never, "signbit": _signed(_text("{a} < 0"), _never),
}  # fmt: skip

#: What `operation` writes by itself, and what `values.ValueWriter` does.
WRITTEN: Final = frozenset({"cast", "where", "bitcast", *COMPARISONS, "asserted", "promised", "random"})

BOOLS: Final[dict[str, Emitter]] = {
    "add": _infix("|"), "mul": _infix("&"), "sub": _infix("^"), "maximum": _infix("|"), "minimum": _infix("&"),
    "fmax": _infix("|"), "fmin": _infix("&"), "and": _infix("&"), "or": _infix("|"), "xor": _infix("^"),
    "not": _text("{a} == 0"), "abs": _same, "sign": _same, "isnan": _never, "isinf": _never, "signbit": _never,
}  # fmt: skip


def emitters(dtype: str) -> dict[str, Emitter]:
    """By name, what writes operators on operands of `dtype` (of half types: on float32)."""
    return FLOATS if dtype in FLOATING else BOOLS if dtype == "bool" else INTEGERS


# -- helpers ---------------------------------------------------------------------------------------------------------

#: Functions written into the module where they are needed: folds of pairs (`tl.max` skips NaN), `ir.random`, and 2**a
#: in one instruction, which takes what is below 2**-126 for 0 (`tl.exp2` takes four).
HELPERS: Final[dict[str, str]] = {
    "maximum_of": """
@triton.jit
def maximum_of(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    "minimum_of": """
@triton.jit
def minimum_of(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    "product_of": """
@triton.jit
def product_of(a, b):
    return a * b
""",
    "two_to_the": """
@triton.jit
def two_to_the(a):
    return tl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=f,f", [a], dtype=tl.float32, is_pure=True, pack=1
    )
""",
    "random_words": f"""
@triton.jit
def random_words(key, low, high):
    word = key.to(tl.uint32)
    high = high ^ (key >> 32).to(tl.uint32)
    for _ in tl.static_range({ROUNDS}):
        product = low.to(tl.uint64) * {MULTIPLIER}
        low, high = (product >> 32).to(tl.uint32) ^ word ^ high, product.to(tl.uint32)
        word = word + {KEY_STEP}
    return low, high
""",
    "first_maximum": """
@triton.jit
def first_maximum(a, i, b, j):
    better = (b > a) | ((b == a) & (j < i)) | ((b != b) & ((a == a) | (j < i)))
    return tl.where(better, b, a), tl.where(better, j, i)
""",
    "first_maximum_last_nan": """
@triton.jit
def first_maximum_last_nan(a, i, b, j):
    better = (b > a) | ((b == a) & (j < i)) | ((b != b) & ((a == a) | (j > i)))
    return tl.where(better, b, a), tl.where(better, j, i)
""",
    "first_minimum": """
@triton.jit
def first_minimum(a, i, b, j):
    better = (b < a) | ((b == a) & (j < i)) | ((b != b) & ((a == a) | (j < i)))
    return tl.where(better, b, a), tl.where(better, j, i)
""",
}


def identity(op: str, dtype: str) -> str:
    """The literal that reduction `op` starts from."""
    if "max" in op or "min" in op:
        lowest = "max" in op
        if dtype in FLOATING:
            return literal(float("-inf") if lowest else float("inf"), dtype)
        if dtype == "bool":
            return literal(not lowest, dtype)
        bits = 8 * ITEM_SIZE_BYTES[dtype]
        if dtype in SIGNED:
            return str(-(1 << (bits - 1)) if lowest else (1 << (bits - 1)) - 1)
        return str(0 if lowest else (1 << bits) - 1)
    return literal(1 if op in ("prod", "all") else 0, dtype)


#: The operation that folds one more value.
COMBINE: Final = {
    "sum": "add", "prod": "mul", "max": "maximum", "min": "minimum", "any": "or", "all": "and",
}  # fmt: skip
