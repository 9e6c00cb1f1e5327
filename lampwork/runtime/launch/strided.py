"""Writes to strided parts as a program's operator: see `lower/cat_pad.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch


def as_strided_scatter(
    base: torch.Tensor, source: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int
) -> torch.Tensor:
    """A copy of `base` in its strides, with `source` written to a strided part that begins `offset` elements after
    its own beginning. (ATen's counts from the beginning of the storage, where other buffers lie.)

    A part may begin ahead of `base`, where that lies deep in its storage: nobody sees what is written there. The copy
    of an expanded tensor, whose elements share memory, is contiguous.
    """
    if any(step == 0 and extent > 1 for extent, step in zip(base.shape, base.stride())):
        base = base.clone()
    ahead = max(-offset, 0)
    if ahead and base.numel():
        last = sum((extent - 1) * step for extent, step in zip(base.shape, base.stride()))
        memory = torch.empty(ahead + last + 1, dtype=base.dtype, device=base.device)
        made = memory.as_strided(base.shape, base.stride(), ahead).copy_(base)
    else:
        made = torch.empty_strided(base.shape, base.stride(), dtype=base.dtype, device=base.device).copy_(base)
    made.as_strided(size, stride, made.storage_offset() + offset).copy_(source)
    return made


OPERATORS: dict[str, Callable[..., object]] = {"lampwork::as_strided_scatter.default": as_strided_scatter}
