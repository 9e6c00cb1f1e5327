"""Integers in tensors that a program uses as sizes, found while it runs."""

from __future__ import annotations

from collections.abc import Callable

import torch

from lampwork.errors import LampworkError


class AssumptionFailed(LampworkError):
    """The contents of a tensor are not what the program was captured for; its message says where the program looks."""


class SizeNotAssumed(AssumptionFailed):
    """That is so of a size that the contents of a tensor decide."""


class SideNotAssumed(AssumptionFailed):
    """That is so of a branch whose other side was the usual one."""


def many_of_one(number: torch.Tensor) -> torch.Tensor:
    """As many elements as `number` says, without memory for each. Raises `SizeNotAssumed` if it is negative."""
    count = number.item()
    if count < 0:
        raise SizeNotAssumed(f"a number that is used as a size is {count}")
    return torch.empty(1, dtype=torch.bool, device=number.device).expand(count)


OPERATORS: dict[str, Callable[..., torch.Tensor]] = {"lampwork::many_of_one.default": many_of_one}
