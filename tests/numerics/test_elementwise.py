"""Elementwise operators on special values: NaN, infinities, signs of zero, denormals, huge numbers, as eager's on a CPU.

Eager's vectors and its scalar loop (tails, tensors with gaps) differ in places; either is right.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import lampwork

from .special_values import FLOATS, INTEGERS, compiled_results, differs, grid, strided, told

inf, nan = math.inf, math.nan

UNARY = {
    name: getattr(torch, name)
    for name in """neg abs sign sgn reciprocal sqrt rsqrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan
    sinh cosh tanh asinh acosh atanh erf erfc lgamma sigmoid floor ceil trunc round frac deg2rad rad2deg square relu
    positive isnan isinf isfinite isposinf isneginf signbit nan_to_num logical_not bitwise_not sinc angle logit""".split()
} | {
    name: getattr(F, name)
    for name in """gelu silu mish hardsigmoid hardswish hardtanh relu6 leaky_relu elu celu selu softplus logsigmoid
    hardshrink softshrink softsign tanhshrink""".split()
} | {
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"), "hardtanh(-2, 3)": lambda x: F.hardtanh(x, -2, 3),
    "leaky_relu(-.3)": lambda x: F.leaky_relu(x, -0.3), "elu(.7)": lambda x: F.elu(x, 0.7),
    "softplus(2, 3)": lambda x: F.softplus(x, 2.0, 3.0), "threshold": lambda x: F.threshold(x, 0.5, -3),
    "softshrink(0)": lambda x: F.softshrink(x, 0.0), "logit(.1)": lambda x: torch.logit(x, 0.1),
    "entr": torch.special.entr, "clamp(-1, 2)": lambda x: x.clamp(-1, 2), "clamp(min=0)": lambda x: x.clamp(min=0),
    "clamp(max=0)": lambda x: x.clamp(max=0), "clamp(nan)": lambda x: x.clamp(min=nan),
    "clamp(2, -1)": lambda x: x.clamp(2, -1), "clamp(-0., 0.)": lambda x: x.clamp(-0.0, 0.0),
    "to bool": lambda x: x.bool(), "to float16": lambda x: x.half(), "to bfloat16": lambda x: x.bfloat16(),
    "to float64": lambda x: x.double(), "1 / x": lambda x: 1 / x, "x / 3": lambda x: x / 3, "7 // x": lambda x: 7 // x,
    "5 % x": lambda x: 5 % x, "x + -0.": lambda x: x + -0.0, "x + 0.": lambda x: x + 0.0, "x - 0.": lambda x: x - 0.0,
    "x * 0": lambda x: x * 0, "x * -0.": lambda x: x * -0.0, "1 - x": lambda x: 1 - x, "x + .1": lambda x: x + 0.1,
    "x // inf": lambda x: x // inf, "x // 3": lambda x: x // 3, "copysign": lambda x: torch.copysign(x, -0.0),
    "where": lambda x: torch.where(x > 0, x, -0.0), "masked_fill": lambda x: x.masked_fill(x > 1, -inf),
    "floor": lambda x: torch.div(x, 0.3, rounding_mode="floor"), "trunc": lambda x: torch.div(x, 0.3, rounding_mode="trunc"),
    "xlogy": lambda x: torch.xlogy(x, 2), "xlog1py": lambda x: torch.special.xlog1py(2, x),
    **{f"x ** {n}": (lambda n: lambda x: x**n)(n) for n in (2, 3, 0.5, -0.5, -1.0, -2.0, 0, 1.7, 1.0, inf)},
    **{f"{n} ** x": (lambda n: lambda x: n**x)(n) for n in (2, 1.0, 0.0, -2.0)},
    **{f"fmod {n}": (lambda n: lambda x: torch.fmod(x, n))(n) for n in (3, -2.5, inf)},
    **{f"remainder {n}": (lambda n: lambda x: torch.remainder(x, n))(n) for n in (3, -2.5, inf)},
}  # fmt: skip
BINARY = {
    name: getattr(torch, name)
    for name in """add sub mul div remainder fmod minimum maximum fmin fmax copysign hypot atan2 pow logaddexp logaddexp2
    xlogy heaviside ldexp eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor
    bitwise_left_shift bitwise_right_shift""".split()
} | {
    "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"), "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "clamp min": lambda a, b: torch.clamp(a, min=b), "clamp max": lambda a, b: torch.clamp(a, max=b),
    "clamp": lambda a, b: torch.clamp(a, b, -b), "where": lambda a, b: torch.where(a > b, a, b),
    "mse": lambda a, b: F.mse_loss(a, b, reduction="none"), "smooth_l1": lambda a, b: F.smooth_l1_loss(a, b, reduction="none"),
    "huber": lambda a, b: F.huber_loss(a, b, reduction="none", delta=0.7), "glu": lambda a, b: F.glu(torch.stack([a, b]), 0),
    "addcdiv": lambda a, b: torch.addcdiv(a, b, a, value=0.5),
}  # fmt: skip
#: Fewest units in the last place that functions may be off by, and absolute errors of those whose value falls off, or
#: is the difference of what is rounded.
ULPS = 4
ABSOLUTE = {"tanhshrink": 2e-16, "gelu": 1e-7, "gelu tanh": 1e-6, "mish": 1e-40, "logaddexp": 1e-7, "logaddexp2": 2e-7}
#: Powers with an exponent that is no integer: eager's vectors are off by `|exponent * log(base)|` units.
RELATIVE = {"x ** 1.7": 4e-6}
#: Where eager flushes what is below the least normal number in bfloat16.
FLUSHED = {(torch.bfloat16, "erf"): 1e-29}
#: Of these the sign of a zero is a matter of rounding, or of the type in eager.
EITHER_ZERO = {"logaddexp2", "fmin", "fmax"}


def wrong(functions: dict, arguments: tuple[torch.Tensor, ...]) -> dict[str, str]:
    """What differs from eager, by function."""
    dtype = arguments[0].dtype
    found = {}
    for name, (mine,) in compiled_results(functions, arguments).items():
        theirs = functions[name](*arguments)
        assert (mine.dtype, mine.shape, mine.stride()) == (theirs.dtype, theirs.shape, theirs.stride()), name
        others = [theirs, functions[name](*map(strided, arguments))]
        allowed = ABSOLUTE.get(name, 0.0) + FLUSHED.get((dtype, name), 0.0)
        tolerance = RELATIVE.get(name, 0.0) * theirs.double().abs().nan_to_num(0, 0, 0) + allowed
        bad = torch.stack([differs(mine, each, ULPS, tolerance) for each in others]).all(0)
        if name in EITHER_ZERO and dtype is not torch.float32:
            bad &= (mine != 0) | (theirs != 0)
        if bad.any():
            found[name] = told(mine, theirs, bad, arguments)
    return found


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
def test_functions_of_one_tensor(dtype):
    assert not wrong(UNARY, (grid(dtype),))


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
def test_functions_of_two_tensors(dtype):
    values = grid(dtype)
    pairs = (values.repeat_interleave(len(values)), values.repeat(len(values)))
    assert not wrong(BINARY, pairs)


@pytest.mark.parametrize("count", [1, 7, 16, 33])
@pytest.mark.parametrize("value", [0.0, -0.0, inf, -inf, nan], ids=str)
def test_vectors_and_tails(value, count):
    """Each lane of a vector, and what is left over, computes the same."""
    x = torch.full((count,), value)
    for name, (mine,) in compiled_results(UNARY, (x,)).items():
        one = mine[:1].expand_as(mine)
        assert not differs(mine, one, 0, 0.0).any(), name


@pytest.mark.parametrize("other", [torch.float32, torch.float64])
def test_sums_whose_product_alone_is_out_of_range(other):
    """Eager rounds such a sum once. Near the largest number the product is infinite, and the sum is not."""
    x = torch.tensor([1.7e308, -1.7e308, 0.1, 3.0] * 10, dtype=torch.float64)
    y = torch.tensor([-1.5], dtype=other)
    program = lambda x, y: (torch.addcmul(x, x, y), torch.addcmul(x, x, y, value=1.1), torch.lerp(x, x * 0.5, y.to(x)))
    expected = program(x, y)
    if torch.isfinite(expected[0]).all():  # a build that does not contract rounds the product
        found = lampwork.compile(program, options={"cache": False})(x, y)
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected))
