"""Errors of the inline functions in units of the last place, against a wider type."""

from __future__ import annotations

import math

import mpmath
import numpy
import pytest
import torch

from .helpers import TARGETS, elementwise, run

COUNT = 1 << 16

#: Function: largest error allowed in ulp, and the ranges sampled.
FLOAT32 = {
    "exp": (1.0, [(-104.0, 89.0), (-1e-3, 1e-3)]),
    "expm1": (1.6, [(-20.0, 89.0), (-1.0, 1.0), (-1e-4, 1e-4)]),
    "log": (1.0, [(1e-45, 1e-37), (1e-37, 3e38), (0.5, 2.0)]),
    "log1p": (1.5, [(-0.999, 3.0), (-1e-3, 1e-3), (1.0, 1e30)]),
    "tanh": (1.3, [(-10.0, 10.0), (-1.0, 1.0), (-1e-3, 1e-3)]),
    "sigmoid": (2.6, [(-87.0, 30.0), (-1.0, 1.0)]),
    "erf": (1.2, [(-4.5, 4.5), (-1.0, 1.0), (-1e-3, 1e-3)]),
    "sin": (1.6, [(-10.0, 10.0), (-1e5, 1e5), (-1e9, 1e9)]),
    "cos": (1.6, [(-10.0, 10.0), (-1e5, 1e5), (-1e9, 1e9)]),
}
FLOAT64 = {
    "exp": (1.0, [(-745.0, 709.0), (-1e-3, 1e-3)]),
    "log": (1.0, [(1e-300, 1e300), (0.5, 2.0)]),
    "sigmoid": (2.0, [(-40.0, 40.0)]),
}
WIDE = {
    "exp": numpy.exp, "expm1": numpy.expm1, "log": numpy.log, "log1p": numpy.log1p, "tanh": numpy.tanh, "sin": numpy.sin,
    "cos": numpy.cos, "sigmoid": lambda x: 1 / (1 + numpy.exp(-x)),
    "erf": lambda x: torch.erf(torch.from_numpy(numpy.ascontiguousarray(x))).numpy(),
}  # fmt: skip


def spread(low: float, high: float, count: int, dtype) -> numpy.ndarray:
    """Half uniform, half by magnitude."""
    generator = numpy.random.default_rng(1)
    uniform = generator.uniform(low, high, count // 2)
    largest = math.log(max(abs(low), abs(high)))
    smallest = math.log(low) if low > 0 else largest - 20
    magnitude = numpy.exp(generator.uniform(smallest, largest, count - count // 2))
    sign = numpy.where(generator.random(magnitude.shape) < 0.5, -1.0, 1.0) if low < 0 else 1.0
    return numpy.clip(numpy.concatenate([uniform, magnitude * sign]), low, high).astype(dtype)


def error_ulps(result: numpy.ndarray, exact: numpy.ndarray) -> float:
    with numpy.errstate(over="ignore"):
        nearest = exact.astype(result.dtype)
    spacing = numpy.spacing(numpy.abs(nearest))
    finite = numpy.isfinite(nearest) & numpy.isfinite(spacing)
    assert numpy.array_equal(numpy.isfinite(result)[finite], numpy.ones(finite.sum(), bool))
    return float(numpy.max(numpy.abs(result.astype(exact.dtype) - exact)[finite] / spacing[finite]))


def evaluate(op: str, values: numpy.ndarray, target: str) -> numpy.ndarray:
    tensor = torch.from_numpy(values)
    result = torch.empty_like(tensor)
    name = str(tensor.dtype).removeprefix("torch.")
    run(elementwise(op, [name], name, len(values)), {"b0": tensor, "b1": result}, target)
    return result.numpy()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", FLOAT32)
def test_float32(op, target):
    limit, ranges = FLOAT32[op]
    for low, high in ranges:
        values = spread(low, high, COUNT, numpy.float32)
        exact = WIDE[op](values.astype(numpy.float64))
        assert error_ulps(evaluate(op, values, target), exact) <= limit, (low, high)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", FLOAT64)
def test_float64(op, target):
    limit, ranges = FLOAT64[op]
    exact_function = {"exp": mpmath.exp, "log": mpmath.log, "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x))}[op]
    for low, high in ranges:
        values = spread(low, high, 2000, numpy.float64)
        result = evaluate(op, values, target)
        worst = 0.0
        with mpmath.workdps(40):
            for x, y in zip(values.tolist(), result.tolist()):
                exact = exact_function(mpmath.mpf(x))
                worst = max(worst, float(abs(mpmath.mpf(y) - exact) / numpy.spacing(abs(float(exact)))))
        assert worst <= limit, (low, high)


@pytest.mark.parametrize("target", TARGETS)
def test_gelu(target):
    """Two ulp above zero; below, where the value falls off, an absolute error no larger than eager's."""
    for low, high in ((0.0, 10.0), (-20.0, 0.0), (-1e-3, 1e-3), (-3e38, 3e38)):
        values = (
            spread(low, high, COUNT, numpy.float32) if low else numpy.linspace(low, high, COUNT, dtype=numpy.float32)
        )
        result = evaluate("gelu", values, target).astype(numpy.float64)
        wide = values.astype(numpy.float64)
        exact = torch.nn.functional.gelu(torch.from_numpy(wide)).numpy()
        exact = numpy.where(numpy.isfinite(exact), exact, numpy.maximum(wide, 0))
        error = numpy.abs(result - exact)
        above = values > 0
        assert numpy.all(error[above] <= 2 * numpy.spacing(numpy.abs(exact[above]).astype(numpy.float32)))
        assert numpy.all(error[~above] <= 7e-8)
        near = ~above & (values > -1)
        assert numpy.all(error[near] <= 4e-7 * numpy.abs(exact[near]))


@pytest.mark.parametrize("target", TARGETS)
def test_limits(target):
    """What C's functions give at the ends, zeros signed."""
    inf, nan = math.inf, math.nan
    cases = {
        "exp": [(inf, inf), (-inf, 0.0), (nan, nan), (0.0, 1.0), (100.0, inf), (-120.0, 0.0), (-103.0, 1e-45)],
        "expm1": [(inf, inf), (-inf, -1.0), (nan, nan), (-0.0, -0.0), (100.0, inf)],
        "log": [(inf, inf), (-inf, nan), (nan, nan), (0.0, -inf), (-0.0, -inf), (-1.0, nan), (1.0, 0.0)],
        "log1p": [(inf, inf), (nan, nan), (-1.0, -inf), (-2.0, nan), (-0.0, -0.0), (1e-45, 1e-45)],
        "tanh": [(inf, 1.0), (-inf, -1.0), (nan, nan), (-0.0, -0.0), (50.0, 1.0), (1e-45, 1e-45)],
        "erf": [(inf, 1.0), (-inf, -1.0), (nan, nan), (-0.0, -0.0), (50.0, 1.0)],
        "gelu": [(inf, inf), (nan, nan), (0.0, 0.0), (50.0, 50.0), (3e38, 3e38)],
        "sigmoid": [(inf, 1.0), (-inf, 0.0), (nan, nan), (0.0, 0.5)],
        "sin": [(inf, nan), (-inf, nan), (nan, nan), (-0.0, -0.0)],
        "cos": [(inf, nan), (-inf, nan), (nan, nan), (-0.0, 1.0)],
    }
    for op, pairs in cases.items():
        values = numpy.array([x for x, _ in pairs] * 9, dtype=numpy.float32)
        wanted = numpy.array([y for _, y in pairs] * 9, dtype=numpy.float32)
        for kind in (numpy.float32, numpy.float64):
            keep = (
                numpy.ones(len(values), bool)
                if kind is numpy.float32
                else (numpy.abs(values) < 60) | ~numpy.isfinite(values)
            )
            result = evaluate(op, values.astype(kind)[keep], target)
            if kind is numpy.float32:
                numpy.testing.assert_array_equal(result, wanted, err_msg=op)
                assert numpy.array_equal(numpy.signbit(result)[wanted == 0], numpy.signbit(wanted)[wanted == 0]), op
            else:
                numpy.testing.assert_allclose(result, wanted[keep], rtol=1e-6, atol=1e-40, err_msg=op)
