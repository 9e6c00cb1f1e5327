"""Every operation of the loop IR on every element type, as Triton text in Triton's interpreter, against torch."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from lampwork.codegen.triton.source import kernel_source
from lampwork.errors import CompileError
from lampwork.ir.loops import Kernel, Loop
from lampwork.ir.scalar_operators import fma
from tests.unit.codegen.helpers import DTYPES, elementwise, sample
from tests.unit.codegen.test_operations import (
    BINARY,
    COMPARISONS,
    COUNT,
    FLOATS,
    FUNCTIONS,
    INTEGERS,
    UNARY,
    binary_case,
    wide_unsigned,
)
from tests.unit.codegen.triton.interpret import available, launch
from tests.unit.codegen.triton.programs import TARGET

pytestmark = pytest.mark.skipif(bool(available()), reason=available())


def on_gpu(kernel: Kernel) -> Kernel:
    """The kernel with its outermost loop parallel, as the schedule for GPUs has it."""
    (loop,) = kernel.body
    assert isinstance(loop, Loop)
    return replace(kernel, body=(replace(loop, kind="parallel"),))


def check(op, inputs, output, expected, exact=True, dtype=None):
    result = torch.full((COUNT,), 1, dtype=getattr(torch, output))
    names = [str(tensor.dtype).removeprefix("torch.") for tensor in inputs]
    kernel = on_gpu(elementwise(op, names, output, COUNT, dtype))
    launch(kernel_source(kernel, TARGET), [*inputs, result])
    tolerances = {"rtol": 0, "atol": 0} if exact else {}
    torch.testing.assert_close(result, expected, equal_nan=True, **tolerances)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("op", BINARY)
def test_binary(op, dtype):
    a, b, expected, exact = binary_case(op, dtype)
    check(op, [a, b], dtype, expected, exact)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_product_is_added_before_it_is_rounded(dtype):
    a, b = sample(dtype, COUNT, 1), sample(dtype, COUNT, 2).flip(0)
    c = -(a * b)
    expected = torch.tensor([fma(*each) for each in zip(a.tolist(), b.tolist(), c.tolist())], dtype=a.dtype)
    check("fma", [a, b, c], dtype, expected, exact=dtype == "float32")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", COMPARISONS)
def test_comparisons(op, dtype):
    a, b = sample(dtype, COUNT, 1), sample(dtype, COUNT, 2)
    b[::3] = a[::3]
    unsigned = dtype in ("uint64", "uint32", "uint16")
    expected = COMPARISONS[op](*((wide_unsigned(a), wide_unsigned(b)) if unsigned else (a, b)))
    check(op, [a, b], "bool", expected, dtype="bool")


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS)
@pytest.mark.parametrize("op", UNARY)
def test_unary(op, dtype):
    a = sample(dtype, COUNT, 3)
    check(op, [a], dtype, UNARY[op](a))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", [*FUNCTIONS, "gelu"])
def test_functions(op, dtype):
    a = sample(dtype, COUNT, 4)
    if op == "gelu":
        a[a.isinf()] = -2  # where eager on CUDA differs from eager on the CPU
    expected = torch.nn.functional.gelu(a) if op == "gelu" else FUNCTIONS[op](a)
    check(op, [a], dtype, expected, exact=op == "reciprocal")


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["isnan", "isinf", "signbit"])
def test_float_tests(op, dtype):
    a = sample(dtype, COUNT, 5)
    check(op, [a], "bool", getattr(torch, op)(a), dtype="bool")


@pytest.mark.parametrize("source", DTYPES)
def test_casts(source):
    a = sample(source, COUNT, 6)
    for target in DTYPES:
        b = a
        if a.dtype.is_floating_point and not target.startswith(("float", "bfloat", "bool")):
            limit = 2.0 ** min(torch.iinfo(getattr(torch, target)).bits - 1, 31)
            exact = a.double()
            inside = (exact >= (0 if target.startswith("u") else -limit)) & (exact < limit)
            b = torch.where(inside, a, torch.zeros_like(a))  # what torch does beyond is not defined
        check("cast", [b], target, b.to(torch.int64).to(getattr(torch, target)) if b is not a else a.to(
            getattr(torch, target)))  # fmt: skip


def test_negative_floats_to_uint8():
    """ATen converts through int64, so that -1.0 is 255 on every device."""
    a = torch.tensor([-1.0, -2.5, 300.0, 255.9] * 20)[:COUNT]
    check("cast", [a], "uint8", a.to(torch.int64).to(torch.uint8))


def test_bool_operations():
    a, b = sample("bool", COUNT, 7), sample("bool", COUNT, 8)
    for op, expected in [("and", a & b), ("or", a | b), ("xor", a ^ b), ("maximum", a | b), ("minimum", a & b)]:
        check(op, [a, b], "bool", expected)
    check("not", [a], "bool", ~a)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_not(dtype):
    a = sample(dtype, COUNT, 7)
    check("not", [a], dtype, ~a)


@pytest.mark.parametrize("dtype", DTYPES)
def test_where(dtype):
    condition, a, b = sample("bool", COUNT, 9), sample(dtype, COUNT, 10), sample(dtype, COUNT, 11)
    check("where", [condition, a, b], dtype, torch.where(condition, a, b))


@pytest.mark.parametrize("pair", [("float32", "int32"), ("int64", "float64"), ("float16", "int16"), ("int8", "uint8")])
def test_bitcast(pair):
    source, target = pair
    a = sample(source, COUNT, 12)
    check("bitcast", [a], target, a.view(getattr(torch, target)))


def test_negative_integer_powers():
    a = torch.tensor([1, -1, -1, 2, 0] * 16, dtype=torch.int64)[:COUNT]
    b = torch.tensor([-3, -3, -2, -1, -1] * 16, dtype=torch.int64)[:COUNT]
    check("pow", [a, b], "int64", torch.tensor([1, -1, 1, 0, 0] * 16, dtype=torch.int64)[:COUNT])


def test_undefined_operation_is_an_error():
    with pytest.raises(CompileError, match="sqrt is not defined on int32"):
        kernel_source(on_gpu(elementwise("sqrt", ["int32"], "int32", COUNT)), TARGET)
