"""Custom operators that programs call. Registered once in the process, so not in a program's own file."""

from __future__ import annotations

import torch


@torch.library.custom_op("lampwork_programs::scale", mutates_args=())
def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor


@scale.register_fake
def _(x, factor):
    return torch.empty_like(x)


@torch.library.custom_op("lampwork_programs::fill", mutates_args={"x"})
def fill(x: torch.Tensor, value: float) -> None:
    x.fill_(value)


@torch.library.custom_op("lampwork_programs::opaque", mutates_args=())
def opaque(x: torch.Tensor) -> torch.Tensor:
    return x + 1
