"""Numbers that eager refuses because the type of a tensor does not hold them: `half.masked_fill(mask, -1e9)`.

Arithmetic takes any number (`bytes + 300` wraps); operators that convert the number to the type that they compute in
first check it (c10/util/TypeCast.h, `checked_convert`). Which do is not written down here: the kernel is asked, once
for each operator, types of tensors and argument, how large a number it takes (`_limits_of`). Operators that make
tensors of a size that they are given cannot be asked without making them, and are listed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from lampwork import _torch
from lampwork.fakes.fake import Fake
from lampwork.fakes.kernels import refusal
from lampwork.fakes.numbers import number_behind
from lampwork.fakes.operators import Operator

#: Operators that fill tensors, of a size that they are given, with a number: the argument in question.
_MAKERS = {
    "full": "fill_value", "full_like": "fill_value", "new_full": "fill_value", "constant_pad_nd": "value",
    "scalar_tensor": "s",
}  # fmt: skip

#: Operators that make as many elements as their numbers say.
_RANGES = frozenset({"arange", "linspace", "logspace"})

#: No longer range is made to learn whether it can be.
_LONGEST_RANGE = 1 << 12

#: Types whose largest number programs exceed.
_NARROW = frozenset({torch.float16})

#: Types of floats that do not hold each number of Python's.
_FLOATS = _NARROW | {torch.bfloat16, torch.float32}

_NARROW_WHOLE = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32})

#: What each type holds.
_EACH_HOLDS = range(128)

_BFLOAT, _SINGLE = float(torch.finfo(torch.bfloat16).max), float(torch.finfo(torch.float32).max)

#: Numbers that a kernel may take while it takes none beyond them, by direction and by whether they are whole.
_LIMITS: dict[tuple[bool, bool], tuple[float, ...]] = {
    (True, True): (127, 255, 32767, 65504, 2**31 - 1),
    (False, True): (0, -128, -255, -32768, -65504, -(2**31)),
    (True, False): (127.0, 255.0, 32767.0, 65504.0, 2.0**31 - 1, 2.0**63, _BFLOAT, _SINGLE),
    (False, False): (0.0, -128.0, -32768.0, -65504.0, -(2.0**31), -(2.0**63), -_BFLOAT, -_SINGLE),
}

#: Argument -> whether it is a number in the schema, by operator.
_arguments: dict[object, tuple[tuple[int, str], ...]] = {}


class _Limits(NamedTuple):
    """The smallest and the largest number that a kernel takes; None: whatever. `infinite`: infinities as well.
    `of_nan`: what it says of NaN, which no type of whole numbers holds."""

    low: float | None
    high: float | None
    infinite: bool
    error: Exception | None
    of_nan: Exception | None = None


#: What eager's errors call types of elements.
_NAMES = {
    torch.float16: "c10::Half", torch.bfloat16: "c10::BFloat16", torch.float32: "float", torch.float64: "double",
    torch.bool: "bool", torch.complex64: "c10::complex<float>", torch.complex128: "c10::complex<double>",
}  # fmt: skip


def _misfit(dtype: torch.dtype) -> RuntimeError:
    name = _NAMES.get(dtype) or f"{str(dtype).removeprefix('torch.')}_t"
    return RuntimeError(f"value cannot be converted to type {name} without overflow")


def refuse_overflow(op: Operator, args: tuple, kwargs: dict) -> None:
    """Raises eager's error where an argument is a number that the operator does not take beside these tensors. Of one
    that varies, whether it is, is noted for other calls. Numbers out of tensors, whose comparison would break the
    graph, are looked at beside the narrowest type alone."""
    found = _arguments.get(op.overload)
    if found is None:
        found = _arguments[op.overload] = _numbers_of(op)
    for position, name in found:
        number = args[position] if position < len(args) else kwargs.get(name)
        kind = type(number)
        if kind is int or kind is float:
            if number not in _EACH_HOLDS:  # a whole number that every type has
                _refuse(op, args, kwargs, position, name)
        elif kind is torch.SymInt or kind is torch.SymFloat or kind is complex:
            _refuse(op, args, kwargs, position, name)


def refuse_wide(op: Operator, args: tuple, kwargs: dict) -> None:
    """Raises eager's error where an integer that varies, and that is no size, has more than 64 bits. That it has not is
    noted for other calls; one that no signed type holds is the number that it is."""
    for argument, value in zip(op.overload._schema.arguments, args):
        if type(value) is torch.SymInt and str(argument.type) in _NUMBERS:
            _refuse_wide(value)
    for name, value in kwargs.items():
        if type(value) is torch.SymInt and name in ("alpha", "beta", "value"):
            _refuse_wide(value)


_NUMBERS = frozenset({"number", "Optional[number]", "Tensor", "Optional[Tensor]"})


def _refuse_wide(number: torch.SymInt) -> None:
    if not has_64_bits(number) and not -(1 << 63) <= int(number) < 1 << 64:
        raise OverflowError("int too big to convert")


def has_64_bits(number: Any) -> bool:
    """Whether a number is no symbolic integer, or one that 64 bits hold with a sign, which is noted."""
    return type(number) is not torch.SymInt or number.node.sizes.fits(number.node.value)


def _numbers_of(op: Operator) -> tuple[tuple[int, str], ...]:
    """Positions and names of the arguments that are numbers of any type."""
    if op.overload.namespace != "aten" or op.is_random or op.kind not in ("functional", "inplace"):
        return ()
    if op.overload._schema.name == "aten::range":
        return ()
    return tuple(
        (position, argument.name)
        for position, argument in enumerate(op.overload._schema.arguments)
        if str(argument.type) in ("number", "Optional[number]")
    )


def _refuse(op: Operator, args: tuple, kwargs: dict, position: int, name: str) -> None:
    number = args[position] if position < len(args) else kwargs[name]
    base = op.base.rstrip("_")
    if base in _MAKERS:
        if name == _MAKERS[base]:
            if base == "full" and type(number) is int and kwargs.get("dtype") is None:
                refuse_misfit(number, torch.int64)
            if not _takes_any_half(base, args, kwargs):
                _refuse_to_make(number, args, kwargs)
        return
    if base in _RANGES:
        if name in ("start", "end", "step"):
            _refuse_in_range(op, number, base, args, kwargs)
        return
    if type(number) is complex:
        error = refusal(op.overload, args, kwargs)
        if error is not None:
            raise error
        return
    is_whole = type(number) in (int, torch.SymInt)
    limits = _limits_of(op, args, kwargs, position, name, is_whole)
    if limits.of_nan is not None and number != number:
        raise type(limits.of_nan)(*limits.of_nan.args)
    if limits.error is None:
        return
    if type(number) is torch.SymFloat and not _is_given(number):
        if not any(each is not None and abs(each) < _BFLOAT for each in (limits.low, limits.high)):
            return
    infinite = math.inf
    above = limits.high is not None and number > limits.high and not (limits.infinite and number == infinite)
    if above or (limits.low is not None and number < limits.low and not (limits.infinite and number == -infinite)):
        raise type(limits.error)(*limits.error.args)


def _takes_any_half(base: str, args: tuple, kwargs: dict) -> bool:
    """Whether eager makes infinities of numbers that a half type does not hold, in place of an error: on a CPU where it
    fills a tensor of one element, and `scalar_tensor` on any device."""
    if base == "constant_pad_nd":
        return False
    tensor = args[0] if isinstance(args[0], torch.Tensor) else None
    dtype = kwargs.get("dtype") or (torch.get_default_dtype() if tensor is None else tensor.dtype)
    if dtype not in (torch.float16, torch.bfloat16):
        return False
    if base == "scalar_tensor":
        return True
    device = kwargs.get("device") or (torch.get_default_device() if tensor is None else tensor.device)
    size = args[0].size() if base == "full_like" else args[1] if base == "new_full" else args[0]
    return torch.device(device).type == "cpu" and all(type(each) is int and each == 1 for each in size)


def _refuse_in_range(op: Operator, number: Any, base: str, args: tuple, kwargs: dict) -> None:
    """The same of a number that a range is made of. The kernel is asked to make it, or its ends."""
    if base != "arange" and len(args) < 3:
        return
    if type(number) is torch.SymFloat:
        is_long = base != "arange" and isinstance(args[2], int) and args[2] > 1
        if is_long:  # `arange` computes in double precision
            refuse_unknown(number, kwargs.get("dtype") or torch.get_default_dtype())
        return
    if not all(isinstance(each, (int, float, torch.dtype, torch.layout, torch.device, type(None)))
               for each in (*args, *kwargs.values())):  # fmt: skip
        return
    given = list(args)
    if base != "arange":
        given[2] = min(given[2], 2)
    elif not _is_short_range(given):
        return
    with torch.no_grad(), _torch.below_autograd(), _torch.kernels_only():
        op.overload(*given, **{**kwargs, "device": "cpu"})


def _is_short_range(numbers: Sequence[float]) -> bool:
    start, end, step = (*numbers, 1) if len(numbers) == 2 else (0, *numbers, 1) if len(numbers) == 1 else numbers
    return bool(step) and abs(end - start) <= _LONGEST_RANGE * abs(step)


def _refuse_to_make(number: Any, args: tuple, kwargs: dict) -> None:
    """The same of a number that a tensor is filled with, in the type of its elements."""
    dtype = kwargs.get("dtype")
    if dtype is None:
        dtype = next((each.dtype for each in args if isinstance(each, torch.Tensor)), None)
    if not has_64_bits(number) and (dtype is None or not (dtype.is_floating_point or dtype.is_complex)):
        raise RuntimeError("value cannot be converted to type int64_t without overflow")
    if type(number) is torch.SymFloat:
        refuse_unknown(number, dtype or torch.get_default_dtype())
    elif dtype is not None:
        refuse_misfit(number, dtype)


#: What kernels take, by operator, types and sizes of tensors, and argument; emptied when it is large.
_known: dict[Any, _Limits] = {}
_MOST_KNOWN = 1 << 12


def _limits_of(op: Operator, args: tuple, kwargs: dict, position: int, name: str, is_whole: bool) -> _Limits:
    """What the kernel takes there. Nothing is said against any number where it refuses a small one, too, or does not
    begin to refuse at what some type holds."""
    key = (
        op.overload, torch.get_default_dtype(), position, is_whole,
        tuple(map(_kind, args)), tuple((each, _kind(value)) for each, value in kwargs.items()),
    )  # fmt: skip
    found = _known.get(key)
    if found is None:
        if len(_known) > _MOST_KNOWN:
            _known.clear()
        found = _known[key] = _asked(op, args, kwargs, position, name, is_whole)
    return found


def _kind(value: object) -> Any:
    """What of an argument decides on the type that a kernel converts numbers to."""
    if isinstance(value, Fake):
        return value.dtype, value.dim(), value.device.type
    if isinstance(value, (list, tuple)):
        return tuple(map(_kind, value))
    return value if isinstance(value, (str, torch.dtype, bool)) else type(value)


def _asked(op: Operator, args: tuple, kwargs: dict, position: int, name: str, is_whole: bool) -> _Limits:
    one: float = 1 if is_whole else 1.0
    plain = [_with_plain_numbers(each) for each in args]
    options = {each: _with_plain_numbers(value) for each, value in kwargs.items()}

    def refused(number: float) -> Exception | None:
        if position < len(plain):
            plain[position] = number
        else:
            options[name] = number
        return refusal(op.overload, tuple(plain), options)

    if refused(one) is not None:
        return _Limits(None, None, True, None)
    high, error = _limit(refused, _LIMITS[True, is_whole], is_whole, 1)
    low, other = _limit(refused, _LIMITS[False, is_whole], is_whole, -1)
    infinite = is_whole or refused(math.inf if high is not None else -math.inf) is None
    return _Limits(low, high, infinite, error or other, None if is_whole else refused(math.nan))


def _limit(
    refused: Callable[[float], Exception | None], limits: Sequence[float], is_whole: bool, sign: int
) -> tuple[float | None, Exception | None]:
    """The number among `limits` from which on others are refused, with the error; None where that is none of them."""
    error = refused(sign * (2**62 if is_whole else 1e300))
    if error is None:
        return None, None
    first, last = 0, len(limits) - 1
    while first < last:
        middle = (first + last) // 2
        if refused(_next(limits[middle], is_whole, sign)) is not None:
            last = middle
        else:
            first = middle + 1
    limit = limits[first]
    if refused(limit) is not None or refused(_next(limit, is_whole, sign)) is None:
        return None, None
    return limit, error


def _next(number: float, is_whole: bool, sign: int) -> float:
    return number + sign if is_whole else math.nextafter(number, sign * math.inf)


def _with_plain_numbers(value: object) -> Any:
    """The argument with a small number for each that varies."""
    if type(value) is torch.SymFloat:
        return 1.0
    if isinstance(value, (list, tuple)):
        return type(value)(map(_with_plain_numbers, value))
    return 1 if type(value) is torch.SymInt else value


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
        raise _misfit(dtype)


def refuse_exponent(number: object, dtype: torch.dtype | None) -> None:
    """Raises eager's error for an exponent that varies of elements of that type: single precision takes it as
    double."""
    if dtype is not torch.float32:
        refuse_unknown(number, dtype)


def refuse_unknown(number: object, dtype: torch.dtype | None) -> None:
    """As `refuse_misfit`, of a float that varies, and is no infinity."""
    if dtype is None or dtype not in _FLOATS:
        return
    if type(number) is torch.SymFloat and (dtype in _NARROW or _is_given(number)):
        limit = torch.finfo(dtype).max
        infinite = float("inf")
        if (number > limit and number != infinite) or (number < -limit and number != -infinite):
            raise _misfit(dtype)


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
