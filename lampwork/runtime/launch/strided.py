"""Writes to strided parts as a program's operator: see `lower/cat_pad.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch


def as_strided_scatter(
    base: torch.Tensor, source: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int
) -> torch.Tensor:
    """A copy of `base` in its strides, with `source` written to a strided part that begins `offset` elements after
    its own beginning. (ATen's counts from the beginning of the storage, where other buffers lie.)

    A part may begin ahead of `base`, where that lies deep in its storage, and end after it: nobody sees what is written
    there. Raises eager's error where it ends after the storage. The copy of an expanded tensor, whose elements share
    memory, is contiguous.
    """
    own, end = _span(base.shape, base.stride()), 0 if 0 in size else offset + _span(size, stride)
    if end > own:
        base.as_strided(size, stride, base.storage_offset() + offset)  # where sizes are symbols nobody has checked it
    if any(step == 0 and extent > 1 for extent, step in zip(base.shape, base.stride())):
        base = base.clone()
        own = base.numel()
    ahead = max(-offset, 0)
    memory = torch.empty(ahead + max(own, end), dtype=base.dtype, device=base.device)
    made = memory.as_strided(base.shape, base.stride(), ahead).copy_(base)
    made.as_strided(size, stride, made.storage_offset() + offset).copy_(source)
    return made


def _span(size: Sequence[int], stride: Sequence[int]) -> int:
    """How many elements of memory it reaches over."""
    return 0 if 0 in size else 1 + sum((extent - 1) * step for extent, step in zip(size, stride))


OPERATORS: dict[str, Callable[..., object]] = {"lampwork::as_strided_scatter.default": as_strided_scatter}
