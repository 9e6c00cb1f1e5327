"""Pointwise operators: one nest each, of the broadcast arguments in the result's compute type."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lampwork import _torch
from lampwork.ir.dtype import FLOATING, INTEGRAL, ITEM_SIZE_BYTES, compute_dtype
from lampwork.ir.loops import Compute, Expr
from lampwork.ir.scalar_operators import SCALARS, ScalarOperator
from lampwork.ir.size import Size, SizeExpr, bounds
from lampwork.lower import expressions as ex
from lampwork.lower.expressions import as_index
from lampwork.lower.lower import Lowering
from lampwork.lower.nests import is_number
from lampwork.lower.promotion import result_type
from lampwork.lower.rules import rule
from lampwork.lower.values import IndexTuple, Number, TensorMeta, TensorValue, broadcast_index, may_overflow

# Unary ----------------------------------------


def _unary(name: str, function: Callable[[Expr], Expr], exact_on_integers: bool = False) -> None:
    """Operator `name` is `function` in the result's compute type; on integers it is the identity if so declared."""

    @rule(name)
    def lower_unary(lowering: Lowering, self: TensorValue) -> TensorValue:
        if lowering.out.dtype == "bool" and name != "bitwise_not":
            return NotImplemented
        if exact_on_integers and lowering.out.dtype not in FLOATING:
            return lowering.pointwise((self,), lambda a: a)
        return lowering.pointwise((self,), function)


def _operation(op: str) -> Callable[[Expr], Expr]:
    return lambda a: Compute(op, (a,), a.dtype)


def lower_as_one_operator(row: ScalarOperator) -> None:
    """The ATen operators that `row` names are it on each element."""
    for name in row.lowers:
        _unary(name, _operation(row.name), exact_on_integers=row.domain == "rounding")


for _row in SCALARS.values():
    lower_as_one_operator(_row)
for _name in ("positive", "conj_physical"):
    _unary(_name, lambda a: a)


_unary("frac", lambda a: ex.sub(a, ex.unary("trunc", a)))
_unary("deg2rad", lambda a: ex.mul(a, ex.like(math.pi / 180.0, a)))
_unary("rad2deg", lambda a: ex.mul(a, ex.like(180.0 / math.pi, a)))
_unary("square", lambda a: ex.mul(a, a))


@rule("relu")
def _relu(lowering: Lowering, self: TensorValue) -> TensorValue:
    if lowering.out.dtype == "bool":
        return NotImplemented
    return lowering.pointwise((self,), lambda a: limited(lowering, a, 0, None))


def limited(lowering: Lowering, a: Expr, low: object, high: object, misses: bool | None = None) -> Expr:
    """`a` between two numbers (None: no limit). On a CPU the value stays itself where it equals a limit, -0 beside 0
    too, as in ATen's kernels: one instruction, where `maximum` asks for NaN besides. On a GPU one limit that is NaN is
    none, and wherever `misses`."""
    alone = low is None or high is None
    misses = not lowering.numerics.limits_select if misses is None else misses
    for number, op, function in ((low, "lt", ex.maximum), (high, "gt", ex.minimum)):
        if number is None:
            continue
        limit = ex.like(number, a)
        if misses and alone and number != number:
            continue
        if not lowering.numerics.limits_select:
            a = function(a, limit)
        elif a.dtype in FLOATING and isinstance(number, (int, float)) and number == number:
            a = ex.where(ex.compare(op, a, limit), limit, a)
        else:
            a = function(a, limit)
    return a


def _sigmoid(a: Expr) -> Expr:
    return Compute("sigmoid", (a,), a.dtype)


def _predicate(name: str, function: Callable[[Expr], Expr]) -> None:
    """Operator `name` gives bool: `function` of the argument in the argument's own compute type."""

    @rule(name)
    def lower_predicate(lowering: Lowering, self: TensorValue) -> TensorValue:
        return lowering.pointwise((self,), function, self.dtype)


def _nonzero(a: Expr) -> Expr:
    return ex.cast(a, "bool")


def _float_only(op: str) -> Callable[[Expr], Expr]:
    return lambda a: ex.test(op, a) if a.dtype in FLOATING else ex.constant(False, "bool")


_predicate("logical_not", lambda a: Compute("not", (_nonzero(a),), "bool"))
_predicate("isnan", _float_only("isnan"))
_predicate("isinf", _float_only("isinf"))
_predicate("isfinite", ex.is_finite)
_predicate(
    "isposinf",
    lambda a: ex.compare("eq", a, ex.like(math.inf, a)) if a.dtype in FLOATING else ex.constant(False, "bool"),
)
_predicate(
    "isneginf",
    lambda a: ex.compare("eq", a, ex.like(-math.inf, a)) if a.dtype in FLOATING else ex.constant(False, "bool"),
)


@rule("signbit")
def _signbit(lowering: Lowering, self: TensorValue) -> TensorValue:
    def body(a: Expr) -> Expr:
        if a.dtype in FLOATING:
            return ex.test("signbit", a)
        if a.dtype == "bool" or a.dtype.startswith("u"):
            return ex.constant(False, "bool")
        return ex.compare("lt", a, ex.like(0, a))

    return lowering.pointwise((self,), body, self.dtype)


@rule("nan_to_num")
def _nan_to_num(
    lowering: Lowering,
    self: TensorValue,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> TensorValue:
    dtype = self.dtype
    if dtype not in FLOATING:
        return lowering.pointwise((self,), lambda a: a)
    largest = {"float64": 1.7976931348623157e308, "float32": 3.4028234663852886e38, "float16": 65504.0,
               "bfloat16": 3.3895313892515355e38}[dtype]  # fmt: skip

    def body(a: Expr) -> Expr:
        high = ex.like(largest if posinf is None else posinf, a)
        low = ex.like(-largest if neginf is None else neginf, a)
        value = ex.where(ex.compare("eq", a, ex.like(-math.inf, a)), low, a)
        value = ex.where(ex.compare("eq", a, ex.like(math.inf, a)), high, value)
        return ex.where(ex.test("isnan", a), ex.like(0.0 if nan is None else nan, a), value)

    return lowering.pointwise((self,), body)


# Binary ----------------------------------------


def _of_two(op: str) -> Callable[[Expr, Expr], Expr]:
    return lambda a, b: ex.binary(op, a, b)


#: Where products and quotients take a number as it is, in half types too (`binary_kernel_reduced_floating_vec_opmath`).
FACTOR = (1,)


def _binary(names: tuple[str, ...], function: Callable[[Expr, Expr], Expr], wide_numbers: tuple[int, ...] = ()) -> None:
    @rule(*names)
    def lower_binary(lowering: Lowering, self: Any, other: object) -> TensorValue:
        return lowering.pointwise((self, other), function, wide_numbers=wide_numbers)


def _scaled(b: Expr, alpha: object) -> Expr:
    return b if alpha == 1 else ex.mul(b, ex.like(alpha, b))


@rule("add.Tensor", "add.Scalar")
def _add(lowering: Lowering, self: TensorValue, other: TensorValue | Number, alpha: Number = 1) -> TensorValue:
    if lowering.out.dtype == "bool" and alpha != 1:
        return NotImplemented
    return _plus_scaled(lowering, self, other, alpha)


def _plus_scaled(lowering: Lowering, a: object, b: object, alpha: Any) -> TensorValue:
    """`a + alpha * b`. Of float32 and float64 it is rounded once, as in eager: products may be out of range."""
    once = abs(alpha) != 1 and lowering.out.dtype in ("float32", "float64")

    def body(a: Expr, b: Expr) -> Expr:
        if once:
            return ex.fma(b, ex.like(alpha, b), a)
        return ex.sub(a, b) if alpha == -1 else ex.add(a, _scaled(b, alpha))

    return lowering.pointwise((a, b), body)


@rule("sub.Tensor", "sub.Scalar")
def _sub(lowering: Lowering, self: TensorValue, other: TensorValue | Number, alpha: Number = 1) -> TensorValue:
    return _plus_scaled(lowering, self, other, -alpha)


@rule("rsub.Tensor", "rsub.Scalar")
def _rsub(lowering: Lowering, self: TensorValue, other: TensorValue | Number, alpha: Number = 1) -> TensorValue:
    return _plus_scaled(lowering, other, self, -alpha)


_binary(("mul.Tensor", "mul.Scalar"), ex.mul, FACTOR)
_binary(("div.Tensor", "div.Scalar", "true_divide.Tensor"), ex.div, FACTOR)
_binary(("minimum",), ex.minimum)
_binary(("maximum",), ex.maximum)


@rule("fmin", "fmax")
def _fmin_fmax(lowering: Lowering, self: TensorValue, other: TensorValue) -> TensorValue:
    name = "fmin" if lowering.origin.op.startswith("aten::fmin") else "fmax"
    if lowering.out.dtype not in FLOATING:
        return lowering.pointwise((self, other), ex.minimum if name == "fmin" else ex.maximum)
    return lowering.pointwise((self, other), lambda a, b: ex.binary(name, a, b))


@rule("nextafter")
def _nextafter(lowering: Lowering, self: TensorValue, other: TensorValue) -> TensorValue:
    """The neighbour in the type itself, which kernels of halves do not compute in."""
    if lowering.out.dtype in ("float16", "bfloat16"):
        return NotImplemented
    return lowering.pointwise((self, other), _of_two("nextafter"))


for _name in ("atan2", "hypot", "copysign.Tensor"):
    _binary((_name,), _of_two(_name.partition(".")[0]))
_binary(("copysign.Scalar",), _of_two("copysign"))
for _name, _op in (
    ("bitwise_and", "and"), ("bitwise_or", "or"), ("bitwise_xor", "xor"),
    ("bitwise_left_shift", "shift_left"), ("bitwise_right_shift", "shift_right"),
):  # fmt: skip
    _forms = (
        (f"{_name}.Tensor", f"{_name}.Scalar")
        if "shift" not in _name
        else (f"{_name}.Tensor", f"{_name}.Tensor_Scalar")
    )
    _binary((*_forms, f"{_name}.Scalar_Tensor"), _of_two(_op))
for _name, _op in (("__lshift__", "shift_left"), ("__rshift__", "shift_right")):
    _binary((f"{_name}.Tensor", f"{_name}.Scalar"), _of_two(_op))


def _integer_division(
    lowering: Lowering,
    self: Any,
    other: Any,
    function: Callable[[Expr, Expr], Expr],
    message: str = "ZeroDivisionError",
) -> TensorValue:
    """Integer quotients and remainders: eager raises for a divisor that is zero in their type (256 is, as int8), so
    does a check, if anything is divided; the kernel divides by 1."""
    dtype = lowering.out.dtype
    period = 1 << 8 * ITEM_SIZE_BYTES[dtype]
    if not isinstance(other, TensorValue):
        if not isinstance(other, SizeExpr) and int(other) % period == 0:
            return NotImplemented
        least, greatest = bounds(other) if isinstance(other, SizeExpr) else (1, 1)
        if 0 < least and greatest < period:
            return lowering.pointwise((self, other), function)
    shape = other.shape if isinstance(other, TensorValue) else ()
    #: Sizes of the result alone that may be 0: nothing is divided then.
    may_be_empty = [size for size in lowering.out.shape if size not in shape and bounds(size)[0] < 1]

    def is_zero(index: tuple) -> Expr:
        value = lowering.operand(other, index, shape, dtype)
        found = ex.compare("eq", value, ex.like(0, value))
        for size in may_be_empty:
            found = Compute("and", (found, ex.compare("gt", as_index(size), as_index(0))), "bool")
        return found

    if 0 not in lowering.out.shape:
        lowering.check(shape, is_zero, message, "RuntimeError", in_kernels=False)

    def guarded(a: Expr, b: Expr) -> Expr:
        return function(a, ex.where(ex.compare("eq", b, ex.like(0, b)), ex.like(1, b), b))

    return lowering.pointwise((self, other), guarded)


@rule("floor_divide", "floor_divide.Scalar")
def _floor_divide(lowering: Lowering, self: TensorValue, other: TensorValue | Number) -> TensorValue:
    if lowering.out.dtype in FLOATING:
        return lowering.pointwise((self, other), _of_two("floordiv"), wide_numbers=FACTOR)
    return _integer_division(lowering, self, other, _of_two("floordiv"))


@rule("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor")
def _remainder(lowering: Lowering, self: TensorValue | Number, other: TensorValue | Number) -> TensorValue:
    if lowering.out.dtype in FLOATING:
        return lowering.pointwise((self, other), _of_two("mod"), as_elements=True)
    return _integer_division(lowering, self, other, _of_two("mod"))


@rule("fmod.Tensor", "fmod.Scalar")
def _fmod(lowering: Lowering, self: TensorValue, other: TensorValue | Number) -> TensorValue:
    if lowering.out.dtype in FLOATING:
        return lowering.pointwise((self, other), _of_two("fmod"), as_elements=True)
    return _integer_division(lowering, self, other, _of_two("fmod"))


@rule("div.Tensor_mode", "div.Scalar_mode")
def _div_mode(
    lowering: Lowering, self: TensorValue, other: TensorValue | Number, rounding_mode: str | None = None
) -> TensorValue:
    if rounding_mode is None:
        return lowering.pointwise((self, other), ex.div, wide_numbers=FACTOR)
    floor = rounding_mode == "floor"
    if lowering.out.dtype in FLOATING:
        if floor:
            return lowering.pointwise((self, other), _of_two("floordiv"), wide_numbers=FACTOR)
        # Eager's CPU kernel rounds the quotient of two tensors of a half type before it cuts it off.
        half = lowering.numerics.rounds_half_quotients and not is_number(other)
        kept = lowering.out.dtype if half else compute_dtype(lowering.out.dtype)

        def body(a: Expr, b: Expr) -> Expr:
            return ex.unary("trunc", ex.cast(ex.cast(ex.div(a, b), kept), a.dtype))

        return lowering.pointwise((self, other), body, wide_numbers=FACTOR)
    return _integer_division(lowering, self, other, _of_two("floordiv" if floor else "truncdiv"))


def _comparison(name: str) -> None:
    @rule(f"{name}.Tensor", f"{name}.Scalar")
    def lower_comparison(lowering: Lowering, self: Any, other: object) -> TensorValue:
        if isinstance(other, complex):
            return NotImplemented
        compare = lambda a, b: ex.compare(name, a, b)
        return lowering.pointwise((self, other), compare, result_type(self, other), as_elements=True)


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _comparison(_name)


def _logical(name: str, op: str) -> None:
    @rule(name)
    def lower_logical(lowering: Lowering, self: Any, other: Any) -> TensorValue:
        axes_shape = lowering.out.shape

        def body(index: tuple) -> Expr:
            left, right = (
                _nonzero(value.load(broadcast_index(index, axes_shape, value.shape))) for value in (self, other)
            )
            return Compute(op, (left, right), "bool")

        return lowering.compute(lowering.out, body)


for _name, _op in (("logical_and", "and"), ("logical_or", "or"), ("logical_xor", "xor")):
    _logical(_name, _op)


def power(a: Expr, exponent: object) -> Expr:
    """`a ** exponent` with the exponents that ATen has special cases for (PowKernel.cpp)."""
    if a.dtype in FLOATING:
        match exponent:
            case 0:
                return ex.like(1, a)
            case 1:
                return a
            case 0.5:
                return ex.unary("sqrt", a)
            case -0.5:
                return ex.unary("rsqrt", a)
            case -1:
                return ex.unary("reciprocal", a)
            case -2:
                return ex.unary("reciprocal", ex.mul(a, a))
    match exponent:
        case 2:
            return ex.mul(a, a)
        case 3:
            return ex.mul(ex.mul(a, a), a)
    return ex.binary("pow", a, ex.like(exponent, a))


@rule("pow.Tensor_Scalar")
def _pow_scalar(lowering: Lowering, self: TensorValue, exponent: Number) -> TensorValue:
    dtype = lowering.out.dtype
    if dtype == "bool" or (dtype in INTEGRAL and (not isinstance(exponent, int) or exponent < 0)):
        return NotImplemented
    if type(exponent) is float:
        exponent = lowering.rounded(exponent, dtype, as_elements=True)
        if dtype == "float16" and not lowering.numerics.roots_of_half and exponent in (0.5, -0.5):
            # ATen has no root for this type alone: (-inf) ** 0.5 is inf.
            return lowering.pointwise((self,), lambda a: ex.binary("pow", a, ex.like(exponent, a)))
    return lowering.pointwise((self,), lambda a: power(a, exponent))


@rule("pow.Tensor_Tensor", "pow.Scalar")
def _pow(lowering: Lowering, self: TensorValue | Number, exponent: TensorValue) -> TensorValue:
    if lowering.out.dtype not in FLOATING:
        return NotImplemented
    return lowering.pointwise((self, exponent), lambda a, b: ex.binary("pow", a, b), as_elements=True)


@rule("xlogy.Tensor", "xlogy.Scalar_Self", "xlogy.Scalar_Other")
def _xlogy(lowering: Lowering, self: TensorValue | Number, other: TensorValue | Number) -> TensorValue:
    def body(a: Expr, b: Expr) -> Expr:
        value = ex.where(ex.compare("eq", a, ex.like(0, a)), ex.like(0, a), ex.mul(a, ex.unary("log", b)))
        return ex.where(ex.test("isnan", b), ex.like(math.nan, b), value)

    return lowering.pointwise((self, other), body, as_elements=True)


@rule("special_xlog1py", "special_xlog1py.self_scalar", "special_xlog1py.other_scalar")
def _xlog1py(lowering: Lowering, self: TensorValue | Number, other: TensorValue | Number) -> TensorValue:
    def body(a: Expr, b: Expr) -> Expr:
        value = ex.where(ex.compare("eq", a, ex.like(0, a)), ex.like(0, a), ex.mul(a, ex.unary("log1p", b)))
        return ex.where(ex.test("isnan", b), ex.like(math.nan, b), value)

    return lowering.pointwise((self, other), body)


def _log_add_exp(exp: str, log1p: Callable[[Expr], Expr]) -> Callable[[Expr, Expr], Expr]:
    def body(a: Expr, b: Expr) -> Expr:
        same_infinity = Compute("and", (ex.test("isinf", a), ex.compare("eq", a, b)), "bool")
        difference = ex.unary("neg", ex.unary("abs", ex.sub(a, b)))
        return ex.where(same_infinity, a, ex.add(ex.maximum(a, b), log1p(ex.unary(exp, difference))))

    return body


_binary(("logaddexp",), _log_add_exp("exp", _operation("log1p")))
_binary(("logaddexp2",), _log_add_exp("exp2", lambda a: ex.mul(ex.unary("log1p", a), ex.like(1.0 / math.log(2.0), a))))


@rule("heaviside")
def _heaviside(lowering: Lowering, self: TensorValue, values: TensorValue) -> TensorValue:
    def body(a: Expr, b: Expr) -> Expr:
        zero = ex.like(0, a)
        return ex.where(ex.compare("eq", a, zero), b, ex.cast(ex.compare("gt", a, zero), a.dtype))

    return lowering.pointwise((self, values), body)


# Ternary ----------------------------------------


@rule("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def _where(
    lowering: Lowering, condition: TensorValue, self: TensorValue | Number, other: TensorValue | Number
) -> TensorValue:
    if condition.dtype != "bool":
        return NotImplemented
    shape, dtype = lowering.out.shape, lowering.out.dtype

    def body(index: tuple) -> Expr:
        # No arithmetic: half types need no float32.
        return ex.where(
            lowering.operand(condition, index, shape, "bool"),
            lowering.operand(self, index, shape, dtype),
            lowering.operand(other, index, shape, dtype),
        )

    return lowering.compute(lowering.out, body)


@rule("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(lowering: Lowering, self: TensorValue, mask: TensorValue, value: Number | TensorValue) -> TensorValue:
    if mask.dtype != "bool" or may_overflow(value, self.dtype):
        return NotImplemented
    return _where(lowering, mask, value, self)


@rule("clamp", "clamp.Tensor")
def _clamp(lowering: Lowering, self: TensorValue, min: Number | TensorValue | None = None,
           max: Number | TensorValue | None = None) -> TensorValue:  # fmt: skip
    if all(each is None or type(each) in (int, float) for each in (min, max)):
        misses = not (lowering.numerics.limits_select and _torch.clamp_takes_missing_limits())
        return lowering.pointwise((self,), lambda a: limited(lowering, a, min, max, misses))
    inputs = [self] + [bound for bound in (min, max) if bound is not None]

    def body(a: Expr, *limits: Expr) -> Expr:
        # Of equal ones eager's kernels give the second operand: with both limits the value, else the limit.
        if min is not None and max is not None:
            return ex.minimum(limits[1], ex.maximum(limits[0], a))
        return ex.maximum(a, limits[0]) if min is not None else ex.minimum(a, limits[0])

    return lowering.pointwise(inputs, body)


@rule("clamp_min", "clamp_min.Tensor")
def _clamp_min(lowering: Lowering, self: TensorValue, min: Number | TensorValue) -> TensorValue:
    return _one_limit(lowering, self, min, None)


@rule("clamp_max", "clamp_max.Tensor")
def _clamp_max(lowering: Lowering, self: TensorValue, max: Number | TensorValue) -> TensorValue:
    return _one_limit(lowering, self, None, max)


def _one_limit(lowering: Lowering, self: TensorValue, min: Any, max: Any) -> TensorValue:
    if type(max if min is None else min) in (int, float):
        return lowering.pointwise((self,), lambda a: limited(lowering, a, min, max))
    return _clamp(lowering, self, min, max)


@rule("addcmul")
def _addcmul(
    lowering: Lowering, self: TensorValue, tensor1: TensorValue, tensor2: TensorValue, value: Number = 1
) -> TensorValue:
    def body(a: Expr, b: Expr, c: Expr) -> Expr:
        if value != 1 and lowering.numerics.scales_products:
            return _sum_of_product(lowering, ex.like(value, b), ex.mul(b, c), a)
        return _sum_of_product(lowering, _scaled(b, value), c, a)

    return lowering.pointwise((self, tensor1, tensor2), body)


def _sum_of_product(lowering: Lowering, a: Expr, b: Expr, c: Expr) -> Expr:
    """`a * b + c`, rounded once where eager's kernels do that: the product alone may be out of range."""
    once = a.dtype in FLOATING and lowering.contracts
    return ex.fma(a, b, c) if once else ex.add(c, ex.mul(a, b))


@rule("addcdiv")
def _addcdiv(
    lowering: Lowering, self: TensorValue, tensor1: TensorValue, tensor2: TensorValue, value: Number = 1
) -> TensorValue:
    def body(a: Expr, b: Expr, c: Expr) -> Expr:
        if value != 1 and lowering.numerics.scales_products:
            return _sum_of_product(lowering, ex.like(value, b), ex.div(b, c), a)
        return ex.add(a, ex.div(_scaled(b, value), c))

    return lowering.pointwise((self, tensor1, tensor2), body)


@rule("lerp.Tensor", "lerp.Scalar")
def _lerp(lowering: Lowering, self: TensorValue, end: TensorValue, weight: TensorValue | Number) -> TensorValue:
    def body(a: Expr, b: Expr, w: Expr) -> Expr:
        difference = ex.sub(b, a)
        near = _sum_of_product(lowering, w, difference, a)
        # Numbers that are left over from vectors do as on a GPU, so either will do where bits do not matter.
        adds = lowering.exact is not None and not lowering.numerics.lerps_subtract
        if lowering.contracts and adds:
            far = _sum_of_product(lowering, ex.sub(w, ex.like(1, w)), difference, b)
        else:
            far = _sum_of_product(lowering, ex.unary("neg", difference), ex.sub(ex.like(1, w), w), b)
        return ex.where(ex.compare("lt", ex.unary("abs", w), ex.like(0.5, w)), near, far)

    return lowering.pointwise((self, end, weight), body, wide_numbers=() if type(weight) is TensorValue else (2,))


@rule("addr")
def _addr(
    lowering: Lowering, self: TensorValue, vec1: TensorValue, vec2: TensorValue, beta: Number = 1, alpha: Number = 1
) -> TensorValue:
    dtype = lowering.out.dtype
    if dtype not in FLOATING:
        return NotImplemented
    column = vec1.view((vec1.shape[0], 1), (1, 1), 0, lambda index: index[:1])

    def body(a: Expr, b: Expr, c: Expr) -> Expr:
        outer = ex.mul(_scaled(b, alpha), c)
        # beta == 0 ignores `self`, NaN included.
        return outer if beta == 0 else ex.add(_scaled(a, beta), outer)

    return lowering.pointwise((self, column, vec2), body)


@rule("ldexp.Tensor")
def _ldexp(lowering: Lowering, self: TensorValue, other: TensorValue) -> TensorValue:
    """`self * 2.0 ** other`, where the power is computed in the type that `pow` has; a float's exponent is moved by
    whole numbers, of which C's `ldexp` sees the low 32 bits (`ldexp_kernel`, `ldexp_kernel_cuda`)."""
    out, shape = lowering.out.dtype, lowering.out.shape
    if out not in FLOATING:
        return NotImplemented
    # ATen's `_pow2`: 2 is a number, but beside a half or a double it is a tensor of that type without dimensions.
    two = TensorMeta(self.dtype, (), ()) if self.dtype in ("float16", "bfloat16", "float64") else 2.0
    kept = result_type(two, other)
    moves = self.dtype in FLOATING and other.dtype not in (*FLOATING, "bool")

    def body(index: IndexTuple) -> Expr:
        a = ex.cast(lowering.operand(self, index, shape, out), compute_dtype(out))
        if not moves:
            exponent = ex.cast(lowering.operand(other, index, shape, kept), compute_dtype(kept))
            return ex.mul(a, ex.cast(ex.cast(ex.binary("pow", ex.like(2, exponent), exponent), kept), a.dtype))
        # Factors that double precision holds: two for a half and for a float, which it holds all products of.
        value = ex.cast(a, "float64")
        rest = ex.cast(ex.cast(lowering.operand(other, index, shape, "int64"), "int32"), "float64")
        for _ in range(3 if a.dtype == "float64" else 1):
            part = ex.minimum(ex.maximum(rest, ex.like(-1000, rest)), ex.like(1000, rest))
            value = ex.mul(value, ex.unary("exp2", part))
            rest = ex.sub(rest, part)
        return ex.cast(value, a.dtype)

    return lowering.compute(lowering.out, body)


@rule("angle")
def _angle(lowering: Lowering, self: TensorValue) -> TensorValue:
    def body(a: Expr) -> Expr:
        value = ex.where(ex.compare("lt", a, ex.like(0, a)), ex.like(math.pi, a), ex.like(0, a))
        return ex.where(ex.test("isnan", a), a, value)

    return lowering.pointwise((self,), body)


@rule("zero")
def _zero(lowering: Lowering, self: TensorValue) -> TensorValue:
    return lowering.compute(lowering.out, lambda index: ex.constant(0, self.dtype))


# Copies and conversions ----------------------------------------


@rule("_to_copy", "clone", "lift_fresh_copy", "contiguous")
def _copy(lowering: Lowering, self: TensorValue, **options: object) -> TensorValue:
    """dtype and strides are those of the result."""
    return lowering.compute(lowering.out, self.load)


@rule("copy")
def _copy_from(lowering: Lowering, self: TensorValue, src: TensorValue, non_blocking: bool = False) -> TensorValue:
    shape = lowering.out.shape
    return lowering.compute(lowering.out, lambda index: src.load(broadcast_index(index, shape, src.shape)))


@rule("lampwork::promised")
def _promised(lowering: Lowering, x: TensorValue, within: TensorValue) -> TensorValue:
    shape = lowering.out.shape

    def value(index: tuple[Size, ...]) -> Expr:
        mask = x.load(broadcast_index(index, shape, x.shape))
        return Compute("promised", (mask, within.load(broadcast_index(index, shape, within.shape))), "bool")

    return lowering.compute(lowering.out, value)


@rule("lampwork::if_given")
def _if_given(lowering: Lowering, x: TensorValue, given: TensorValue) -> TensorValue:
    """`x`, of which nothing is read where it is not there."""
    return lowering.compute(lowering.out, lambda index: x.load(index, given.load(()), 0))
