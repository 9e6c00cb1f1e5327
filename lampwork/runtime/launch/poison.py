"""Planned memory is filled with NaN where nothing is in it.

Used under LAMPWORK_POISON=1 alone (see `codegen/host_poison.py`). Every byte is 255: NaN in each floating type, -1 in
integers, no truth value.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import torch

from lampwork.backends import backend_of
from lampwork.ir.size import span

FILL = 255


def poison(memory: torch.Tensor | None, ranges: Sequence[tuple[int, int]] | None = None) -> None:
    """Fills the bytes of these ranges (None: all) of `memory`, a flat tensor of bytes."""
    if memory is None:
        return
    for start, end in ranges if ranges is not None else ((0, memory.numel()),):
        if backend_of(memory.device.type).is_host:
            ctypes.memset(memory.data_ptr() + start, FILL, end - start)
        else:
            memory[start:end].fill_(FILL)


def poisoned(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`make`, whose tensors hold nothing that could pass for a result."""

    def made(*args: object, **kwargs: object) -> torch.Tensor:
        tensor = make(*args, **kwargs)
        if tensor.numel():
            numel = span(tensor.shape, tensor.stride())
            if backend_of(tensor.device.type).is_host:
                ctypes.memset(tensor.data_ptr(), FILL, numel * tensor.element_size())
            else:
                tensor.as_strided((numel,), (1,)).view(torch.uint8).fill_(FILL)
        return tensor

    return made


NAMES = {"poison": poison}
