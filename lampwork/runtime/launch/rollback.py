"""The first run of a program, which can be taken back.

    kept = rollbacks.keep(sizes, (x3, x7), True)   what the program is about to write, and the generators; None if
                                                   proven
    ...
    put_back(kept)                                 after a failure: as if the program had not run
    rollbacks.proven.add(sizes)                    after success

What operators return is planned from shape rules. Where one returns something else, that is found when it is called,
and the program may have written to the caller's tensors by then. Once it has run through, every operator has been seen
to fit, for these sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from lampwork import _torch
from lampwork.backends import backend_of


class Rollbacks:
    """The sizes with which a program on `device` has run to its end."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._is_capturing = backend_of(device).launching.is_capturing
        self.proven: set[tuple] = set()

    def keep(self, sizes: tuple, tensors: Sequence[torch.Tensor], draws: bool) -> Any:
        """Copies of `tensors`' memory, and the generators' states if the program `draws`.

        None where the program is proven, or is captured as a CUDA graph: it has run before that.
        """
        if sizes in self.proven or self._is_capturing():
            return None
        with torch.inference_mode(False), torch.no_grad(), _torch.below_autograd():
            memories = [_bytes(tensor) for tensor in tensors]
            copies = [(memory, memory.clone()) for memory in memories]
        states = None
        if draws:
            from lampwork.runtime.launch.randomness import generator_states

            states = generator_states(self.device)
        return copies, states, self.device


def put_back(kept: Any) -> None:
    """Memory and generators as `keep` found them."""
    copies, states, device = kept
    with torch.inference_mode(False), torch.no_grad(), _torch.below_autograd():
        for memory, copy in copies:
            memory.copy_(copy)
    if states is not None:
        from lampwork.runtime.launch.randomness import restore_generators

        restore_generators(states, device)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The memory from `tensor`'s first to its last element, whose version autograd does not look at."""
    span = 0
    if tensor.numel():
        span = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
    start = tensor.storage_offset() * tensor.element_size()
    empty = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return empty.set_(tensor.untyped_storage(), start, (span * tensor.element_size(),), (1,))
