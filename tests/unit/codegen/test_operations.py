"""Every operation on every element type and machine level against torch."""

from __future__ import annotations

import math

import pytest
import torch

from lampwork.ir.scalar_operators import fma

from .helpers import DTYPES, TARGETS, elementwise, run, sample

COUNT = 77
FLOATS = ["float64", "float32", "float16", "bfloat16"]
INTEGERS = ["int64", "int32", "int16", "int8", "uint8"]

BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div,
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"), "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "mod": torch.remainder, "fmod": torch.fmod, "minimum": torch.minimum, "maximum": torch.maximum, "fmin": torch.fmin,
    "fmax": torch.fmax, "copysign": torch.copysign, "nextafter": torch.nextafter, "hypot": torch.hypot,
    "atan2": torch.atan2, "pow": torch.pow, "and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor,
    "shift_left": torch.bitwise_left_shift, "shift_right": torch.bitwise_right_shift,
}  # fmt: skip
FLOAT_ONLY = {"div", "copysign", "nextafter", "hypot", "atan2"}
INTEGER_ONLY = {"truncdiv", "and", "or", "xor", "shift_left", "shift_right"}
COMPARISONS = {"eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge}
UNARY = {
    "neg": torch.neg, "abs": torch.abs, "sign": torch.sign, "floor": torch.floor, "ceil": torch.ceil,
    "trunc": torch.trunc, "round": torch.round,
}  # fmt: skip
FUNCTIONS = {
    "reciprocal": torch.reciprocal, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "exp": torch.exp, "exp2": torch.exp2,
    "expm1": torch.expm1, "log": torch.log, "log2": torch.log2, "log10": torch.log10, "log1p": torch.log1p,
    "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "asin": torch.asin, "acos": torch.acos, "atan": torch.atan,
    "sinh": torch.sinh, "cosh": torch.cosh, "tanh": torch.tanh, "asinh": torch.asinh, "acosh": torch.acosh,
    "atanh": torch.atanh, "erf": torch.erf, "erfc": torch.erfc, "lgamma": torch.lgamma, "sigmoid": torch.sigmoid,
}  # fmt: skip


def check(op, inputs, output, expected, target, exact=True, dtype=None):
    result = torch.full((COUNT,), 1, dtype=getattr(torch, output))
    tensors = {f"b{n}": tensor for n, tensor in enumerate(inputs)} | {f"b{len(inputs)}": result}
    names = [str(tensor.dtype).removeprefix("torch.") for tensor in inputs]
    run(elementwise(op, names, output, COUNT, dtype), tensors, target)
    if exact:
        torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)
    else:
        torch.testing.assert_close(result, expected, equal_nan=True)


def agreed(op, dtype, a, b):
    """Operands where torch answers: it refuses integer division by zero and negative powers."""
    if not a.dtype.is_floating_point and op in ("floordiv", "truncdiv", "mod", "fmod"):
        b = torch.where(b == 0, torch.ones_like(b), b)
        # The least integer divided by -1 traps in torch.
        b = torch.where(b == -1, torch.full_like(b, 2), b) if dtype.startswith("int") else b
    if op == "pow":
        b = b % 9
    return a, b


def binary_case(op, dtype):
    """Two operands, what torch makes of them, and whether to the last bit. Skips what is not defined."""
    floating = dtype in FLOATS
    if (op in FLOAT_ONLY and not floating) or (op in INTEGER_ONLY and floating):
        pytest.skip("not defined")
    if op == "nextafter" and dtype in ("float16", "bfloat16"):
        pytest.skip("defined on float32 and float64")
    a, b = agreed(op, dtype, sample(dtype, COUNT, 1), sample(dtype, COUNT, 2).flip(0))
    if floating:
        b[:6], a[6:12] = a[:6].clone(), b[-6:].clone()
    expected = BINARY[op](a, b)
    if op in ("floordiv", "mod", "fmod") and dtype in ("float16", "bfloat16"):
        expected = BINARY[op](a.float(), b.float()).to(a.dtype)
    return a, b, expected, op not in ("pow", "hypot", "atan2") or not floating


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("op", BINARY)
def test_binary(op, dtype, target):
    a, b, expected, exact = binary_case(op, dtype)
    check(op, [a, b], dtype, expected, target, exact)


@pytest.mark.parametrize("dtype", ["float32", "int64", "int32", "uint8"])
@pytest.mark.parametrize("op", BINARY)
def test_operands_that_are_literals(op, dtype):
    """On either side, and on both: code generation simplifies what it knows."""
    a, b, expected, exact = binary_case(op, dtype)
    for place in (*range(12), 20, 33):
        left, right = a[place].item(), b[place].item()
        for literals in ({0: left}, {1: right}, {0: left, 1: right}):
            kernel = elementwise(op, [dtype, dtype], dtype, COUNT, literals=literals)
            result = torch.empty_like(a)
            run(kernel, {"b0": a, "b1": b, "b2": result}, TARGETS[-1])
            tolerance = {"rtol": 0, "atol": 0} if exact else {}
            torch.testing.assert_close(result[place], expected[place], equal_nan=True, **tolerance)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_product_is_added_before_it_is_rounded(dtype, target):
    """What is left of a product and its rounded value: 0 if it were rounded first."""
    a, b = sample(dtype, COUNT, 1), sample(dtype, COUNT, 2).flip(0)
    c = -(a * b)
    expected = torch.tensor([fma(*each) for each in zip(a.tolist(), b.tolist(), c.tolist())], dtype=a.dtype)
    assert bool((expected.isfinite() & (expected != 0)).any())
    check("fma", [a, b, c], dtype, expected, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", COMPARISONS)
def test_comparisons(op, dtype, target):
    a, b = sample(dtype, COUNT, 1), sample(dtype, COUNT, 2)
    b[::3] = a[::3]
    if dtype in ("uint64", "uint32", "uint16"):
        expected = COMPARISONS[op](wide_unsigned(a), wide_unsigned(b))
    else:
        expected = COMPARISONS[op](a, b)
    check(op, [a, b], "bool", expected, target, dtype="bool")


def wide_unsigned(a):
    """Order-preserving int64 image of an unsigned tensor (torch compares few unsigned types)."""
    if a.dtype == torch.uint64:
        return a.view(torch.int64) ^ (-(1 << 63))
    return a.to(torch.int64)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("op", UNARY)
def test_unary(op, dtype, target):
    a = sample(dtype, COUNT, 3)
    check(op, [a], dtype, UNARY[op](a), target)


def rounded_root(a):
    roots = [math.sqrt(x) if x >= 0 else math.nan for x in a.tolist()]
    return torch.tensor(roots, dtype=torch.float64).to(a.dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", FUNCTIONS)
def test_functions(op, dtype, target):
    a = sample(dtype, COUNT, 4)
    # torch's own square root may come from a library that does not round correctly.
    expected = rounded_root(a) if op == "sqrt" else FUNCTIONS[op](a)
    check(op, [a], dtype, expected, target, exact=op in ("reciprocal", "sqrt"))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", ["isnan", "isinf", "signbit"])
def test_float_tests(op, target):
    for dtype in FLOATS:
        a = sample(dtype, COUNT, 5)
        check(op, [a], "bool", getattr(torch, op)(a), target, dtype="bool")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", DTYPES)
def test_casts(source, target):
    a = sample(source, COUNT, 6)
    for kind in DTYPES:
        if a.dtype.is_floating_point and kind in ("uint64", "uint32", "uint16"):
            expected = a.to(torch.int64).to(getattr(torch, kind))
            inside = (a >= 0) & (a < 2.0**31)  # what torch does beyond is not defined
            b = torch.where(inside, a, torch.zeros_like(a))
            check("cast", [b], kind, b.to(torch.int64).to(expected.dtype), target)
            continue
        check("cast", [a], kind, a.to(getattr(torch, kind)), target)


@pytest.mark.parametrize("target", TARGETS)
def test_bool_operations(target):
    a, b = sample("bool", COUNT, 7), sample("bool", COUNT, 8)
    for op, expected in [("and", a & b), ("or", a | b), ("xor", a ^ b), ("maximum", a | b), ("minimum", a & b)]:
        check(op, [a, b], "bool", expected, target)
    check("not", [a], "bool", ~a, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_where(dtype, target):
    condition, a, b = sample("bool", COUNT, 9), sample(dtype, COUNT, 10), sample(dtype, COUNT, 11)
    check("where", [condition, a, b], dtype, torch.where(condition, a, b), target)


@pytest.mark.parametrize("target", TARGETS)
def test_integer_division_never_traps(target):
    for dtype in INTEGERS:
        a = torch.full((COUNT,), torch.iinfo(getattr(torch, dtype)).min, dtype=getattr(torch, dtype))
        for divisor in (0, -1):
            b = torch.full_like(a, divisor) if divisor == 0 or dtype != "uint8" else torch.full_like(a, 255)
            for op in ("floordiv", "truncdiv", "mod", "fmod"):
                result = torch.empty_like(a)
                run(elementwise(op, [dtype, dtype], dtype, COUNT), {"b0": a, "b1": b, "b2": result}, target)


@pytest.mark.parametrize("target", TARGETS)
def test_negative_integer_powers(target):
    a = torch.tensor([1, -1, -1, 2, 0] * 16, dtype=torch.int64)[:COUNT]
    b = torch.tensor([-3, -3, -2, -1, -1] * 16, dtype=torch.int64)[:COUNT]
    expected = torch.tensor([1, -1, 1, 0, 0] * 16, dtype=torch.int64)[:COUNT]
    check("pow", [a, b], "int64", expected, target)
