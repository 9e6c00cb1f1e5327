"""Numbers that eager refuses because the type of a tensor does not hold them: `half.masked_fill(mask, -1e9)`.

Arithmetic takes any number (`bytes + 300` wraps); operators that convert the number to the tensor's type first check it
(c10/util/TypeCast.h, `checked_convert`).
"""

from __future__ import annotations

import torch

from lampwork.fakes.numbers import number_behind
from lampwork.fakes.operators import Operator
from lampwork.fakes.promotion import promoted

#: Operators that convert numbers to the type of the result's elements: the arguments in question.
_TO_OWN_TYPE = {
    "masked_fill": ("value",), "fill": ("value",), "full": ("fill_value",), "full_like": ("fill_value",),
    "new_full": ("fill_value",), "index_fill": ("value",), "scatter": ("value",), "constant_pad_nd": ("value",),
    "add": ("alpha",), "sub": ("alpha",), "threshold": ("threshold", "value"), "scalar_tensor": ("s",),
}  # fmt: skip

#: Operators that convert them to the type that tensors and numbers have in common.
_TO_COMMON_TYPE = {
    "clamp": ("min", "max"), "clamp_min": ("min",), "clamp_max": ("max",), "hardtanh": ("min_val", "max_val"),
    "pow": ("exponent",),
}  # fmt: skip

#: Types whose largest number programs exceed.
_NARROW = frozenset({torch.float16})

#: Types of floats that do not hold each number of Python's.
_FLOATS = _NARROW | {torch.bfloat16, torch.float32}

_NARROW_WHOLE = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32})

CHECKED = frozenset({name + end for name in (*_TO_OWN_TYPE, *_TO_COMMON_TYPE) for end in ("", "_")})


def refuse_overflow(op: Operator, args: tuple, kwargs: dict) -> None:
    """Raises eager's error where an operator of `CHECKED` is given a number that does not fit."""
    name = op.base.rstrip("_")
    named = {**dict(zip(op.positional, args)), **kwargs}
    wanted = _TO_OWN_TYPE.get(name) or _TO_COMMON_TYPE[name]
    kinds = (int, float, complex, torch.SymInt)
    for each in [each for each in wanted if type(named.get(each)) in kinds]:
        number = named[each]
        first = named.get("self")
        if not isinstance(first, torch.Tensor):
            dtype = kwargs.get("dtype")
        elif name in _TO_OWN_TYPE:
            dtype = kwargs.get("dtype") or first.dtype
        else:
            dtype = promoted([first, 0 if isinstance(number, torch.SymInt) else number])
        if dtype is None or (name == "pow" and dtype in (torch.float32, torch.float64)):
            continue
        refuse_misfit(number, dtype)


def refuse_misfit(number: complex | torch.SymInt, dtype: torch.dtype) -> None:
    """Raises eager's error where `dtype` does not hold a number. Of one that varies, whether it does is noted for other
    calls."""
    if isinstance(number, torch.SymInt):
        if dtype in _NARROW_WHOLE:
            limits = torch.iinfo(dtype)
            number = _representative(number, -limits.max if limits.min == 0 else limits.min, limits.max)
        elif dtype in _NARROW:
            most = int(torch.finfo(dtype).max)
            number = _representative(number, -most, most)
        else:
            return
    if not fits(number, dtype):
        kind = str(dtype).removeprefix("torch.")
        raise RuntimeError(f"value cannot be converted to type {kind} without overflow")


def refuse_overflow_of_unknown(op: Operator, args: tuple, kwargs: dict) -> None:
    """The same for floats that vary between calls, where a type of floats may not hold them: that this one fits, or
    does not, is noted for others. Factors (`alpha`), which are small steps of optimizers, and numbers out of tensors,
    whose comparison would break the graph, are looked at beside the narrowest type alone."""
    name = op.base.rstrip("_")
    named = {**dict(zip(op.positional, args)), **kwargs}
    first = named.get("self")
    dtype = kwargs.get("dtype")
    if dtype is None and isinstance(first, torch.Tensor):
        dtype = first.dtype if name in _TO_OWN_TYPE else promoted([first, 0.0])
    elif dtype is None and name in ("full", "scalar_tensor"):
        dtype = torch.get_default_dtype()
    for each in _TO_OWN_TYPE.get(name) or _TO_COMMON_TYPE[name]:
        number = named.get(each)
        if name == "pow":
            refuse_exponent(number, dtype)
        elif each != "alpha" or dtype in _NARROW:
            _refuse_unknown(number, dtype)


def refuse_exponent(number: object, dtype: torch.dtype | None) -> None:
    """The same for the exponent of elements of that type: single precision takes it as double."""
    if dtype is not torch.float32:
        _refuse_unknown(number, dtype)


def _refuse_unknown(number: object, dtype: torch.dtype | None) -> None:
    if type(number) is torch.SymFloat and dtype in _FLOATS and (dtype in _NARROW or _is_given(number)):
        limit = torch.finfo(dtype).max
        infinite = float("inf")
        if (number > limit and number != infinite) or (number < -limit and number != -infinite):
            kind = str(dtype).removeprefix("torch.")
            raise RuntimeError(f"value cannot be converted to type {kind} without overflow")


def _is_given(number: torch.SymFloat) -> bool:
    """Whether the call gave a number, and no tensor holds it."""
    return not getattr(number_behind(number), "reads_tensors", True)


def _representative(number: torch.SymInt, least: int, most: int) -> int:
    """A number that fits where `number` does. Which case it is, is noted for other calls."""
    return most + 1 if number > most else least - 1 if number < least else 0


def fits(number: complex, dtype: torch.dtype) -> bool:
    """Whether a conversion to `dtype` is no overflow. Fractions are cut off; whole numbers wrap below zero."""
    if dtype.is_complex:
        return True
    if isinstance(number, complex):
        return number.imag == 0 and fits(number.real, dtype)
    if dtype is torch.bool:
        return True
    if dtype.is_floating_point:
        return number != number or number in (float("inf"), float("-inf")) or abs(number) <= torch.finfo(dtype).max
    limits = torch.iinfo(dtype)
    least = -limits.max if limits.min == 0 and type(number) is int else limits.min
    return number == number and least <= number <= limits.max
