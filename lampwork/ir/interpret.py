"""What loop nests mean: a slow, obvious interpreter on numpy arrays.

Every buffer is an array of its logical shape. numpy has no bfloat16: such buffers are float32 arrays whose elements are
representable, and every store or cast rounds. Nor has it float8: such buffers are arrays of bytes. A nest is evaluated
over its whole iteration space at once; loads outside of a buffer raise `IndexError`, unless they are
masked or not evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lampwork.ir.dtype import FLOAT8, FLOATING
from lampwork.ir.loops import FIRSTS, POSITIONS, Buffer, Compute, Constant, Expr, Index, Load, LoopNest
from lampwork.ir.scalar_operators import SCALARS
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
    if values.dtype.kind == "f" and dtype not in FLOATING:
        limit = 2.0 ** (converted_bits(dtype) - 1)
        values = values.astype(np.float64)
        return np.where(np.abs(values) < limit, values, -limit).astype(np.int64).astype(dtype)
    return values.astype(dtype)


def converted_bits(dtype: str) -> int:
    """How many bits the integer has that ATen converts a float to first, to keep the low ones; what does not fit there
    is its smallest number, as on x86."""
    return 64 if dtype in ("int64", "uint64", "uint32", "uint8") else 32


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


def arrays_of(op: str, arguments: Sequence[np.ndarray]) -> np.ndarray:
    """Scalar operator `op` on the elements of arrays."""
    function = SCALARS[op].arrays
    assert function is not None, f"{op} depends on types"
    return np.asarray(function(*arguments))


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
        return arrays_of(value.op, arguments)
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
    environment: dict[str, object] = dict(sizes or {})
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
