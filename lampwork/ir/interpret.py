"""What loop nests mean: a slow, obvious interpreter on numpy arrays.

Every buffer is an array of its logical shape. numpy has no bfloat16: such buffers are float32 arrays whose elements are
representable, and every store or cast rounds. Nor has it float8: such buffers are arrays of bytes. A nest is evaluated
over its whole iteration space at once; loads outside of a buffer raise `IndexError`, unless they are
masked or not evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lampwork.ir.dtype import FLOAT8, FLOATING
from lampwork.ir.loops import FIRSTS, POSITIONS, Buffer, Compute, Constant, Expr, Index, Load, LoopNest
from lampwork.ir.random import random_bits
from lampwork.ir.size import FloorDiv, Max, Min, Mod, Product, Size, Sum, Symbol

Environment = Mapping[str, Any]


def array_dtype(dtype: str) -> np.dtype:
    """The numpy type that holds elements of `dtype`."""
    return np.dtype("float32" if dtype == "bfloat16" else "uint8" if dtype in FLOAT8 else dtype)


def round_bfloat16(values: np.ndarray) -> np.ndarray:
    """float32 values rounded to the nearest bfloat16 (ties to even), as float32."""
    bits = np.array(values, dtype=np.float32, order="C").view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    result = rounded.view(np.float32)
    return np.where(np.isnan(values), np.float32(np.nan), result)


def convert(values: np.ndarray, dtype: str) -> np.ndarray:
    """`values.to(dtype)`"""
    values = np.asarray(values)
    if dtype in FLOAT8:
        return values  # its bits: nothing else is ever stored there
    if dtype == "bool":
        return values != 0
    if dtype == "bfloat16":
        return round_bfloat16(values.astype(np.float32))
    if values.dtype.kind == "f" and dtype not in FLOATING and dtype.startswith("u"):
        # Negative floats wrap through int64, as in C on x86.
        return values.astype(np.int64).astype(dtype)
    return values.astype(dtype)


def size_values(value: Size, environment: Environment) -> Any:
    """The integer(s) `value` denotes; symbols may stand for arrays."""
    match value:
        case int():
            return value
        case Symbol():
            return environment[value.name]
        case Sum():
            return value.constant + sum(k * size_values(atom, environment) for k, atom in value.terms)
        case Product():
            result: Any = 1
            for factor in value.factors:
                result = result * size_values(factor, environment)
            return result
        case FloorDiv():
            return size_values(value.value, environment) // size_values(value.divisor, environment)
        case Mod():
            return size_values(value.value, environment) % size_values(value.divisor, environment)
        case Min():
            return np.minimum(size_values(value.left, environment), size_values(value.right, environment))
        case Max():
            return np.maximum(size_values(value.left, environment), size_values(value.right, environment))
    raise TypeError(f"not a size: {value!r}")


# Scalar operations ----------------------------------------


def _by_element(function: Any) -> Any:
    def apply(a: np.ndarray) -> np.ndarray:
        return np.vectorize(function, otypes=[np.float64])(a).astype(a.dtype) if a.size else a

    return apply


def _floordiv(a: np.ndarray, b: np.ndarray) -> np.ndarray:
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


def _truncdiv(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    quotient = np.floor_divide(a, b)
    return np.where((quotient < 0) & (quotient * b != a), quotient + 1, quotient).astype(a.dtype)


def _lgamma(value: float) -> float:
    if math.isinf(value) or (value <= 0 and value == math.floor(value)):
        return math.inf
    return math.lgamma(value)


def _shift_left(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    bits = a.dtype.itemsize * 8
    inside = (b >= 0) & (b < bits)
    return np.where(inside, a << np.where(inside, b, 0), 0).astype(a.dtype)


def _shift_right(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    # c10: an amount that is out of range fills with the sign.
    bits = a.dtype.itemsize * 8
    most = bits - 1 if a.dtype.kind == "i" else bits
    inside = (b >= 0) & (b < most)
    shifted = a >> np.where(inside, b, 0)
    filled = a >> (bits - 1) if a.dtype.kind == "i" else np.zeros_like(a)
    return np.where(inside, shifted, filled).astype(a.dtype)


def _sign(a: np.ndarray) -> np.ndarray:
    return ((a > 0).astype(a.dtype) - (a < 0).astype(a.dtype)).astype(a.dtype)


def _asserted(a: np.ndarray, holds: np.ndarray) -> np.ndarray:
    if not np.all(holds):
        raise AssertionError("an asserted condition does not hold")
    return a


def _fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Of double precision in the 64 bits of x86's extended one, which may round twice."""
    wide = np.float64 if a.dtype == np.float32 else np.longdouble
    return (a.astype(wide) * b.astype(wide) + c.astype(wide)).astype(a.dtype)


_OPERATIONS: dict[str, Any] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "floordiv": _floordiv,
    "truncdiv": _truncdiv, "mod": np.mod, "fmod": np.fmod, "neg": np.negative, "abs": np.abs, "sign": _sign,
    "reciprocal": lambda a: (1 / a).astype(a.dtype), "minimum": np.minimum, "maximum": np.maximum, "fmin": np.fmin,
    "fmax": np.fmax, "pow": np.power, "sqrt": np.sqrt, "rsqrt": lambda a: (1 / np.sqrt(a)).astype(a.dtype),
    "exp": np.exp,
    "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "atan2": np.arctan2, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "erf": _by_element(math.erf), "erfc": _by_element(math.erfc), "lgamma": _by_element(_lgamma),
    "gelu": _by_element(lambda x: 0.5 * x * math.erfc(-x * math.sqrt(0.5))),
    "hypot": np.hypot, "copysign": np.copysign, "nextafter": np.nextafter, "fma": _fma,
    "sigmoid": lambda a: (1 / (1 + np.exp(-a))).astype(a.dtype), "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "round": np.rint, "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
    "shift_left": _shift_left, "shift_right": _shift_right, "isnan": np.isnan, "isinf": np.isinf, "signbit": np.signbit,
    "where": np.where, "asserted": _asserted,
    "random": lambda key, number: np.asarray(random_bits(key, number)).astype(np.uint32),
}  # fmt: skip


def evaluate_expression(value: Expr, environment: Environment, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """The value(s) of `value` where its symbols stand for `environment`."""
    if isinstance(value, Constant):
        return convert(np.asarray(value.value), value.dtype)
    if isinstance(value, Index):
        return np.asarray(size_values(value.value, environment), dtype=np.int64)
    if isinstance(value, Load):
        return _load(value, environment, arrays)
    if isinstance(value, Compute):
        arguments = [evaluate_expression(argument, environment, arrays) for argument in value.args]
        if value.op == "cast":
            return convert(arguments[0], value.dtype)
        if value.op == "bitcast":
            if "bfloat16" in (value.dtype, value.args[0].dtype):
                raise NotImplementedError("bitcast of bfloat16")
            return arguments[0].view(array_dtype(value.dtype))
        return np.asarray(_OPERATIONS[value.op](*arguments))
    raise TypeError(f"not an expression of a nest: {value!r}")


def _bind(indirect: tuple, environment: Environment, arrays: Mapping[str, np.ndarray]) -> Environment:
    if not indirect:
        return environment
    return {**environment, **{name: evaluate_expression(bound, environment, arrays) for name, bound in indirect}}


def _load(load: Load, environment: Environment, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    array = arrays[load.buffer]
    bound = _bind(load.indirect, environment, arrays)
    mask = None if load.mask is None else evaluate_expression(load.mask, environment, arrays)
    index = [np.asarray(size_values(position, bound)) for position in load.index]
    for k, position in enumerate(index):
        outside = (position < 0) | (position >= array.shape[k])
        if mask is not None:
            outside = outside & mask
            index[k] = np.where(mask, position, 0)
        if np.any(outside):
            raise IndexError(f"load of {load.buffer} outside dimension {k} of {array.shape}")
    if mask is None:
        return array[tuple(index)]
    other = convert(np.asarray(load.other), load.dtype)
    if array.size == 0:
        return np.broadcast_to(other, np.broadcast(mask, *index).shape)
    return np.where(mask, array[tuple(index)], other)


_FOLDS: dict[str, Any] = {
    "sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "any": np.any, "all": np.all,
}  # fmt: skip


def interpret_nest(
    nest: LoopNest, buffers: Mapping[str, Buffer], arrays: dict[str, np.ndarray], sizes: Mapping[str, int] | None = None
) -> None:
    """Runs one nest: writes `arrays[nest.store.buffer]`, which is created if absent."""
    environment: dict[str, Any] = dict(sizes or {})
    reduced = nest.reduction.axes if nest.reduction is not None else ()
    everything = (*nest.axes, *reduced)
    extents = tuple(int(size_values(axis.extent, environment)) for axis in everything)
    for k, (axis, extent) in enumerate(zip(everything, extents)):
        environment[axis.name] = np.arange(extent).reshape([-1 if d == k else 1 for d in range(len(extents))])
    store = nest.store
    buffer = buffers[store.buffer]
    if store.buffer not in arrays:
        shape = tuple(int(size_values(extent, environment)) for extent in buffer.shape)
        arrays[store.buffer] = np.zeros(shape, array_dtype(buffer.dtype))
    if 0 in extents[: len(nest.axes)]:
        return
    with np.errstate(all="ignore"):
        if 0 in extents:
            value = np.zeros(extents, array_dtype(store.value.dtype))
        else:
            value = np.broadcast_to(evaluate_expression(store.value, environment, arrays), extents)
        kept = len(nest.axes)
        if nest.reduction is not None:
            value = _reduce(nest.reduction.op, value, kept, extents)
        bound = _bind(store.indirect, environment, arrays)
        index = []
        for position in store.index:
            where = np.asarray(size_values(position, bound))
            where = where.reshape(where.shape[:kept]) if where.ndim else where
            index.append(np.broadcast_to(where, extents[:kept]))
        target = arrays[store.buffer]
        value = convert(value, buffer.dtype)
        if store.mode == "add":
            np.add.at(target, tuple(index), value)
        else:
            target[tuple(index)] = value


def _reduce(op: str, value: np.ndarray, kept: int, extents: tuple[int, ...]) -> np.ndarray:
    if op in POSITIONS:
        flat = value.reshape(*extents[:kept], -1)
        if op == "argmax_of_window":
            missing = np.isnan(flat)
            last = flat.shape[-1] - 1 - np.argmax(missing[..., ::-1], axis=-1)
            return np.where(missing.any(-1), last, np.argmax(flat, axis=-1))
        return (np.argmax if op == "argmax" else np.argmin)(flat, axis=-1)
    axes = tuple(range(kept, len(extents)))
    if op in ("sum", "prod"):
        # The order is not part of the meaning; float64 is at least as exact as any.
        exact = np.float64 if value.dtype.kind == "f" else value.dtype
        return _FOLDS[FIRSTS.get(op, op)](value, axis=axes, dtype=exact).astype(value.dtype)
    return _FOLDS[FIRSTS.get(op, op)](value, axis=axes)
