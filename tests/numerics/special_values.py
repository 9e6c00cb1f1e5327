"""Special values for every element type, and how far results may be from eager's: element by element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

import lampwork

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)

_COMMON = [
    0.0, 1.0, 0.5, 1.5, 2.5, 3.5, 2.0, 3.0, math.inf, 0.1, 6.0, 20.0, 21.0, 5.0, math.pi, 0.9999, 1.0001, 4.5, 7.0,
    0.25, 10.0, 1e-3, 100.0, 1e4,
]  # fmt: skip
#: Denormal, least normal, tiny, largest, huge numbers, limits of exponentials, neighbours of halves and of powers of 2.
_OF_TYPE = {
    torch.float32: [1e-45, 1.1754943508222875e-38, 1e-30, 3.4028234663852886e38, 1e30, 16777217.0, 88.7, 89.5, 87.4,
                    103.9, 8388607.5, 0.49999997, 4e9],
    torch.float64: [5e-324, 2.2250738585072014e-308, 1e-300, 1.7976931348623157e308, 1e200, 709.7, 710.5, 745.2, 708.5,
                    0.49999999999999994],
    torch.float16: [6e-8, 6.104e-5, 1e-7, 65504.0, 60000.0, 2049.0, 11.0, 11.1, 9.7, 17.0],
    torch.bfloat16: [1e-40, 1.1754943508222875e-38, 1e-30, 3.3895313892515355e38, 1e30, 257.0, 88.5, 89.5, 87.0, 104.0],
}  # fmt: skip
_BITS = {
    torch.float32: torch.int32,
    torch.float64: torch.int64,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
}


def grid(dtype: torch.dtype) -> torch.Tensor:
    """Each special value of the type once, with both signs."""
    if dtype.is_floating_point:
        values = _COMMON + _OF_TYPE[dtype]
        return torch.tensor([*values, *(-each for each in values), math.nan], dtype=torch.float64).to(dtype)
    if dtype is torch.bool:
        return torch.tensor([False, True, True, False, True, False, False])
    limits = torch.iinfo(dtype)
    below = [-1, -2, -3, -5, -7, -100] if limits.min else []
    values = [0, 1, 2, 3, 5, 7, 100, limits.max, limits.max - 1, limits.min, limits.min + 1]
    return torch.tensor(values + below, dtype=dtype)


def ordered(tensor: torch.Tensor) -> torch.Tensor:
    """Integers in the order of the numbers: neighbours differ by 1."""
    bits = tensor.contiguous().view(_BITS[tensor.dtype])
    least = torch.iinfo(bits.dtype).min
    wide = bits.to(torch.int64)
    return torch.where(wide < 0, least - wide, wide)


def differs(mine: torch.Tensor, theirs: torch.Tensor, ulps: int, absolute: torch.Tensor | float) -> torch.Tensor:
    """Where a result is another than eager's: NaN or infinity or the sign of zero, or further off than allowed."""
    if not mine.is_floating_point():
        return mine != theirs
    apart = mine.isnan() != theirs.isnan()
    numbers = ~mine.isnan() & ~theirs.isnan()
    far = (ordered(mine) - ordered(theirs)).abs() > ulps
    near = (mine.double() - theirs.double()).abs() <= absolute
    zeros = (mine == 0) & (theirs == 0) & (mine.signbit() != theirs.signbit())
    return apart | (numbers & ((far & ~near) | zeros))


def strided(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements with gaps: eager computes them one by one, and not in vectors."""
    return torch.stack([tensor, tensor], dim=-1)[..., 0]


def works(function: Callable, *arguments: torch.Tensor) -> bool:
    try:
        function(*arguments)
    except (RuntimeError, TypeError, ValueError, ZeroDivisionError):
        return False
    return True


def leaves(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)


def compiled_results(
    functions: dict[str, Callable], arguments: Sequence[torch.Tensor]
) -> dict[str, list[torch.Tensor]]:
    """The results of all functions that eager has for such arguments, compiled as one."""
    names = [name for name, function in functions.items() if works(function, *arguments)]

    def program(*arguments: torch.Tensor) -> list:
        return [functions[name](*arguments) for name in names]

    results = lampwork.compile(program, options={"cache": False})(*arguments)
    return {name: leaves(result) for name, result in zip(names, results, strict=True)}


def told(mine: torch.Tensor, theirs: torch.Tensor, wrong: torch.Tensor, arguments: Sequence[torch.Tensor]) -> str:
    """The first wrong elements in words."""
    lines = []
    for place in wrong.flatten().nonzero().flatten().tolist()[:4]:
        operands = [each.flatten()[place].item() for each in arguments if each.shape == mine.shape]
        lines.append(f"{operands or place}: {mine.flatten()[place].item()!r} not {theirs.flatten()[place].item()!r}")
    return f"{int(wrong.sum())} of {wrong.numel()}: " + "; ".join(lines)
