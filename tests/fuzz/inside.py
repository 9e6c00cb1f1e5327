"""Kernels whose formula cancels, with the rounding inside of them disturbed.

    gelu(-5.1)            1 + erf(x / sqrt(2)) is 3.4e-7, of which erf, rounded to a float, knows one digit
    tanhshrink(0.03)      x - tanh(x) is 9e-6

Disturbing what such a kernel reads and returns does not show how far apart two right answers may lie. In the disturbed
runs (`Noise`) they are computed by their formulas, whose steps are disturbed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


def _gelu(noise: Callable, x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    if approximate == "tanh":
        half = noise(torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    else:
        half = noise(torch.erf(x * math.sqrt(0.5)))
    return x * 0.5 * (1 + half)


def _tanhshrink(noise: Callable, x: torch.Tensor) -> torch.Tensor:
    return x - noise(torch.tanh(x))


_FORMULAS: dict[Any, Callable] = {
    torch.nn.functional.gelu: _gelu, torch.nn.functional.tanhshrink: _tanhshrink,
}  # fmt: skip


class Inside(TorchFunctionMode):
    """While it is on, the functions of the table are computed by their formulas, disturbed by `noise`."""

    def __init__(self, noise: Callable) -> None:
        super().__init__()
        self.noise = noise

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        formula = _FORMULAS.get(func)
        if formula is not None and isinstance(args[0], torch.Tensor) and args[0].is_floating_point():
            return formula(self.noise, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))
