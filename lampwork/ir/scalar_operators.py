"""SCALARS: every scalar operator of the loop IR, one row each: what it takes, what it means, what it costs.

    >>> SCALARS["hypot"].arity, SCALARS["hypot"].domain, SCALARS["hypot"].cost
    (2, 'float', 12)

The verifiers, both interpreters, the lowering of ATen operators that are one scalar operator, scheduling's costs and
the vectoriser read their column here. What it is in machine code is a row of the table of each back end, by the same
name: `codegen/llvm/arithmetic.py` and `codegen/triton/expressions.py`. `tests/unit/ir/test_scalar_operators.py` checks
that each operator is in each of them for all types of its domain.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final, Literal

import numpy as np

from lampwork.ir.dtype import ITEM_SIZE_BYTES
from lampwork.ir.random import random_bits
from lampwork.ir.record import record

Number = bool | int | float

#: What types an operator is defined on; results have the operands' type but of the second row.
#:   float       float32 and float64 (half types are cast first)
#:   rounding    the same in nests; kernels may have it on integers, which it leaves as they are or compares
#:   number      integers, float32 and float64; kernels may have it on bool, too
#:   integer     integers
#:   bits        integers and bool
#:   compared    all types, with a result of type bool
#:   tested      as rounding, with a result of type bool
#:   special     as the meaning says
Domain = Literal["float", "rounding", "number", "integer", "bits", "compared", "tested", "special"]


@record
class ScalarOperator:
    """`arrays`: on numpy arrays of one type; `numbers`: on elements as Python numbers, whose result is rounded to its
    type. None where the interpreters have it in their own code, as it depends on the types of operand and result.
    `typed`: `numbers` is given the result's type first.

    `cost`: in simple vector operations, of AVX-512 code. `long`: so many instructions that few iterations fit into a
    processor's window: vectors of two registers. `divides`: on integers, where some operands have no result.
    `lowers`: the ATen operators that are this one on each element, by name.
    """

    name: str
    arity: int
    domain: Domain
    meaning: str = ""
    arrays: Callable[..., object] | None = None
    numbers: Callable[..., Any] | None = None
    cost: int = 1
    long: bool = False
    divides: bool = False
    typed: bool = False
    lowers: tuple[str, ...] = ()

    @property
    def gives_bool(self) -> bool:
        return self.domain in ("compared", "tested")


# On arrays -----------------------------------------------------------------------------------------------------------


def _by_element(function: Callable) -> Any:
    def apply(a: np.ndarray) -> np.ndarray:
        return np.vectorize(function, otypes=[np.float64])(a).astype(a.dtype) if a.size else a

    return apply


def _same_type(function: Callable[[np.ndarray], np.ndarray]) -> Any:
    return lambda a: function(a).astype(a.dtype)


def _floordiv_of_arrays(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind != "f":
        return np.floor_divide(a, b)
    # c10::div_floor_floating
    mod = np.fmod(a, b)
    div = (a - mod) / b
    div = np.where((mod != 0) & ((b < 0) != (mod < 0)), div - 1, div)
    floored = np.floor(div)
    floored = np.where(div - floored > 0.5, floored + 1, floored)
    result = np.where(div != 0, floored, np.copysign(np.zeros_like(div), a / b))
    return np.where(b == 0, a / b, result).astype(a.dtype)


def _truncdiv_of_arrays(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    quotient = np.floor_divide(a, b)
    return np.where((quotient < 0) & (quotient * b != a), quotient + 1, quotient).astype(a.dtype)


def _lgamma_everywhere(value: float) -> float:
    if math.isinf(value) or (value <= 0 and value == math.floor(value)):
        return math.inf
    return math.lgamma(value)


def _shift_left_of_arrays(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    bits = a.dtype.itemsize * 8
    inside = (b >= 0) & (b < bits)
    return np.where(inside, a << np.where(inside, b, 0), 0).astype(a.dtype)


def _shift_right_of_arrays(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    # c10: an amount that is out of range fills with the sign.
    bits = a.dtype.itemsize * 8
    most = bits - 1 if a.dtype.kind == "i" else bits
    inside = (b >= 0) & (b < most)
    shifted = a >> np.where(inside, b, 0)
    filled = a >> (bits - 1) if a.dtype.kind == "i" else np.zeros_like(a)
    return np.where(inside, shifted, filled).astype(a.dtype)


def _asserted_of_arrays(a: np.ndarray, holds: np.ndarray) -> np.ndarray:
    return _asserted(a, bool(np.all(holds)))


def _fma_of_arrays(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Of double precision in the 64 bits of x86's extended one, which may round twice."""
    wide = np.float64 if a.dtype == np.float32 else np.longdouble
    return (a.astype(wide) * b.astype(wide) + c.astype(wide)).astype(a.dtype)


# On Python numbers ---------------------------------------------------------------------------------------------------


def guarded(function: Callable[..., float]) -> Callable[..., float]:
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
    inside = guarded(function)
    return lambda a: -math.inf if a == pole else inside(a)


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
        return guarded(math.fmod)(a, b)
    return 0 if b == 0 else a - b * _truncdiv(a, b)


def carries_nan(pick: Callable) -> Callable:
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


def fma(a: float, b: float, c: float) -> float:
    if not all(map(math.isfinite, (a, b, c))):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if not exact:  # whose sign is that of the sum of zeros, or of what cancels
        return a * b + c if a == 0 or b == 0 else 0.0
    try:
        return float(exact)
    except OverflowError:
        return math.copysign(math.inf, exact)


def _keep_integers(function: Callable[[float], float]) -> Callable[[Number], Number]:
    return lambda a: a if isinstance(a, int) or not math.isfinite(a) else math.copysign(float(function(a)), a)


def _asserted(a: object, holds: bool) -> Any:
    if not holds:
        raise AssertionError("an asserted condition does not hold")
    return a


def _shift(left: bool) -> Callable[[str, int, int], int]:
    def shift(dtype: str, a: int, b: int) -> int:
        if not 0 <= b < 8 * ITEM_SIZE_BYTES[dtype]:
            return -1 if not left and a < 0 else 0
        return a << b if left else a >> b

    return shift


def _nextafter(dtype: str, a: float, b: float) -> float:
    if dtype != "float32":
        return guarded(math.nextafter)(a, b)
    if a != a or b != b:
        return math.nan
    if a == b:
        return b
    if a == 0:
        return math.copysign(struct.unpack("<f", struct.pack("<I", 1))[0], b)
    bits = struct.unpack("<i", struct.pack("<f", a))[0]
    bits += 1 if (a < b) == (a > 0) else -1
    return struct.unpack("<f", struct.pack("<i", bits))[0]


def _gelu(x: float) -> float:
    return 0.5 * x * math.erfc(-x * math.sqrt(0.5))


# The table -----------------------------------------------------------------------------------------------------------


def _function(name: str, cost: int, arrays: Callable, numbers: Callable, arity: int = 1) -> ScalarOperator:
    """A function of real numbers, which no processor has an instruction for; ATen has it by the same name."""
    lowers = (name,) if arity == 1 else ()
    return ScalarOperator(name, arity, "float", "", arrays, numbers, cost, long=True, lowers=lowers)


_Row = ScalarOperator

_ROWS: Final = (
    _Row("add", 2, "number", "a + b", np.add, lambda a, b: a + b),
    _Row("sub", 2, "number", "a - b", np.subtract, lambda a, b: a - b),
    _Row("mul", 2, "number", "a * b", np.multiply, lambda a, b: a * b),
    _Row("div", 2, "float", "a / b", np.divide, _divide, 4),
    _Row("floordiv", 2, "number", "Python a // b; floats as torch's div(rounding_mode='floor')",
         _floordiv_of_arrays, _floordiv, 8, long=True, divides=True),
    _Row("truncdiv", 2, "integer", "quotient rounded to zero", _truncdiv_of_arrays, _truncdiv, 8, divides=True),
    _Row("mod", 2, "number", "Python a % b (sign of b)", np.mod, _python_mod, 8, long=True, divides=True),
    _Row("fmod", 2, "number", "C fmod / integer remainder (sign of a)", np.fmod, _fmod, 12, long=True, divides=True),
    _Row("neg", 1, "number", "-a", np.negative, lambda a: -a, lowers=("neg",)),
    _Row("abs", 1, "number", "|a|", np.abs, abs, lowers=("abs",)),
    _Row("sign", 1, "number", "torch.sign", _same_type(lambda a: (a > 0).astype(a.dtype) - (a < 0).astype(a.dtype)),
         _sign, lowers=("sign", "sgn")),
    _Row("reciprocal", 1, "float", "1 / a", _same_type(lambda a: 1 / a), lambda a: _divide(1.0, a), 4,
         lowers=("reciprocal",)),
    _Row("minimum", 2, "number", "NaN if either is", np.minimum, carries_nan(min)),
    _Row("maximum", 2, "number", "NaN if either is", np.maximum, carries_nan(max)),
    _Row("fmin", 2, "rounding", "the other if one is NaN", np.fmin, _skips_nan(min)),
    _Row("fmax", 2, "rounding", "the other if one is NaN", np.fmax, _skips_nan(max)),
    _Row("pow", 2, "number", "a ** b, floats as C pow, integers by squaring", np.power, _pow, 40, long=True),
    _Row("sqrt", 1, "float", "", np.sqrt, guarded(math.sqrt), 4, lowers=("sqrt",)),
    _Row("rsqrt", 1, "float", "1 / sqrt(a)", _same_type(lambda a: 1 / np.sqrt(a)),
         lambda a: _divide(1.0, guarded(math.sqrt)(a)), 5, lowers=("rsqrt",)),
    _function("exp", 12, np.exp, guarded(math.exp)),
    _function("exp2", 10, np.exp2, guarded(lambda a: 2.0**a)),
    _function("expm1", 16, np.expm1, guarded(math.expm1)),
    _function("log", 14, np.log, _log(math.log)),
    _function("log2", 14, np.log2, _log(math.log2)),
    _function("log10", 14, np.log10, _log(math.log10)),
    _function("log1p", 18, np.log1p, _log(math.log1p, -1.0)),
    _function("sin", 18, np.sin, guarded(math.sin)),
    _function("cos", 18, np.cos, guarded(math.cos)),
    _function("tan", 24, np.tan, guarded(math.tan)),
    _function("asin", 30, np.arcsin, guarded(math.asin)),
    _function("acos", 30, np.arccos, guarded(math.acos)),
    _function("atan", 24, np.arctan, guarded(math.atan)),
    _function("atan2", 40, np.arctan2, guarded(math.atan2), 2),
    _function("sinh", 20, np.sinh, lambda a: math.copysign(guarded(math.sinh)(abs(a)), a)),
    _function("cosh", 20, np.cosh, guarded(math.cosh)),
    _function("tanh", 18, np.tanh, guarded(math.tanh)),
    _function("asinh", 30, np.arcsinh, guarded(math.asinh)),
    _function("acosh", 30, np.arccosh, guarded(math.acosh)),
    _function("atanh", 30, np.arctanh,
              lambda a: math.copysign(math.inf, a) if abs(a) == 1 else guarded(math.atanh)(a)),
    _function("erf", 18, _by_element(math.erf), guarded(math.erf)),
    _function("erfc", 30, _by_element(math.erfc), guarded(math.erfc)),
    _function("lgamma", 60, _by_element(_lgamma_everywhere), guarded(math.lgamma)),
    _function("hypot", 12, np.hypot, guarded(math.hypot), 2),
    _Row("copysign", 2, "float", "", np.copysign, math.copysign),
    _Row("nextafter", 2, "float", "", np.nextafter, _nextafter, 10, typed=True),
    _Row("fma", 3, "float", "a * b + c, rounded once", _fma_of_arrays, fma),
    _Row("gelu", 1, "float", "a times the normal distribution function of a", _by_element(_gelu), guarded(_gelu), 18,
         long=True),
    _Row("sigmoid", 1, "float", "1 / (1 + exp(-a))", _same_type(lambda a: 1 / (1 + np.exp(-a))),
         lambda a: _divide(1.0, 1.0 + guarded(math.exp)(-a)), 14, long=True, lowers=("sigmoid",)),
    _Row("floor", 1, "rounding", "", np.floor, _keep_integers(math.floor), lowers=("floor",)),
    _Row("ceil", 1, "rounding", "", np.ceil, _keep_integers(math.ceil), lowers=("ceil",)),
    _Row("trunc", 1, "rounding", "", np.trunc, _keep_integers(math.trunc), lowers=("trunc",)),
    _Row("round", 1, "rounding", "half to even", np.rint, _keep_integers(round), lowers=("round",)),
    _Row("eq", 2, "compared", "a == b", np.equal, lambda a, b: a == b),
    _Row("ne", 2, "compared", "a != b: true for NaN", np.not_equal, lambda a, b: a != b),
    _Row("lt", 2, "compared", "a < b", np.less, lambda a, b: a < b),
    _Row("le", 2, "compared", "a <= b", np.less_equal, lambda a, b: a <= b),
    _Row("gt", 2, "compared", "a > b", np.greater, lambda a, b: a > b),
    _Row("ge", 2, "compared", "a >= b", np.greater_equal, lambda a, b: a >= b),
    _Row("and", 2, "bits", "bitwise; logical on bool", np.bitwise_and, lambda a, b: a & b),
    _Row("or", 2, "bits", "bitwise; logical on bool", np.bitwise_or, lambda a, b: a | b),
    _Row("xor", 2, "bits", "bitwise; logical on bool", np.bitwise_xor, lambda a, b: a ^ b),
    _Row("not", 1, "bits", "bitwise; logical on bool", np.invert,
         lambda dtype, a: (not a) if dtype == "bool" else ~a, typed=True, lowers=("bitwise_not",)),
    _Row("shift_left", 2, "integer", "a << b; 0 when b is out of range", _shift_left_of_arrays, _shift(True),
         typed=True),
    _Row("shift_right", 2, "integer", "arithmetic on signed types", _shift_right_of_arrays, _shift(False), typed=True),
    _Row("isnan", 1, "tested", "", np.isnan, lambda a: a != a),
    _Row("isinf", 1, "tested", "", np.isinf, lambda a: isinstance(a, float) and math.isinf(a)),
    _Row("signbit", 1, "tested", "", np.signbit, lambda a: math.copysign(1.0, a) < 0),
    _Row("where", 3, "special", "b if a else c, of (bool, T, T)", np.where, lambda a, b, c: b if a else c),
    _Row("asserted", 2, "special", "a; a GPU stops if b is false", _asserted_of_arrays, _asserted),
    _Row("promised", 2, "special", "a, of which is known that it is false where b is", lambda a, b: a, lambda a, b: a),
    _Row("cast", 1, "special", "convert to the result's type as torch's .to()"),
    _Row("bitcast", 1, "special", "same bits as the result's type"),
    _Row("random", 2, "special", "32 random bits, uint32, of int64 (key, number): Philox2x32-10, see ir/random.py",
         lambda key, number: np.asarray(random_bits(key, number)).astype(np.uint32), random_bits, 24),
)  # fmt: skip

SCALARS: Final[dict[str, ScalarOperator]] = {row.name: row for row in _ROWS}
