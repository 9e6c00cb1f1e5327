"""Tangents as backward programs take them, in the layout they were compiled for; what stands for one that is missing.

A model that returns its logits beside its loss gets no tangent for them from `loss.backward()`. Zeros in its place
would be written, kept and read again; so a backward program takes a bool for each large tangent that only its own
kernels read (`Backward.optional`), and where that is false, reads nothing. It takes one, too, where what depends on
missing tangents alone meets other gradients (`Backward.told`), and leaves it out there.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from lampwork import _torch
from lampwork.backends import backend_of
from lampwork.ir.differentiation import Tangent


def laid_out(tangent: torch.Tensor | None, layout: Tangent, kind: tuple[torch.dtype, torch.device]) -> torch.Tensor:
    """`tangent` in the strides that the backward program was compiled for; zeros for None."""
    shape, strides = layout.shape, layout.strides
    assert shape is not None and strides is not None
    if tangent is None:
        return torch.empty_strided(shape, strides, dtype=kind[0], device=kind[1]).zero_()
    if type(tangent) is torch.Tensor and tangent.stride() == strides and not tangent.is_conj() and not tangent.is_neg():
        return tangent
    with torch.no_grad():
        return torch.empty_strided(shape, strides, dtype=kind[0], device=kind[1]).copy_(tangent)


def missing(layout: Tangent, kind: tuple[torch.dtype, torch.device]) -> torch.Tensor:
    """What stands for a tangent that is not read: zeros that share one element."""
    assert layout.shape is not None
    return torch.zeros((), dtype=kind[0], device=kind[1]).expand(layout.shape)


def flags(told: Sequence[int], tangents: Sequence[object], device: str) -> list[torch.Tensor]:
    """Whether there is each of those `told` among `tangents`, as the backward program takes it."""
    if not told:
        return []
    both = _both(device)
    return [both[tangents[index] is not None] for index in told]


@functools.cache
def _both(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """False and True on a device."""
    with torch.inference_mode(False), torch.no_grad(), _torch.below_autograd():
        made = tuple(torch.full((), each, device=device) for each in (False, True))
    backend_of(device).launching.settle(device)  # any stream may read them
    return made
