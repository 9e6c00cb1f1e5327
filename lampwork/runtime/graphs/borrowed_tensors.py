"""Tensors over memory that somebody else keeps: what captured graphs read and write where no tensor owns it."""

from __future__ import annotations

import torch

from lampwork import _torch


class Lender:
    """Gives tensors over the memory of others that own nothing of it; those that share a storage still do."""

    def __init__(self) -> None:
        self._storages: dict[int, torch.Tensor] = {}
        self._lent: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def lent(self, tensor: torch.Tensor) -> torch.Tensor:
        known = self._lent.get(id(tensor))  # one tensor is one tensor; `tensor` stays, and so its id
        if known is not None:
            return known[1]
        storage = tensor.untyped_storage()
        with torch.inference_mode(False), _torch.below_autograd():
            memory = self._storages.get(storage.data_ptr())
            if memory is None:
                memory = _torch.lent(storage.data_ptr(), storage.nbytes(), tensor.device)
                self._storages[storage.data_ptr()] = memory
            lent = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
                memory.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
            )
        self._lent[id(tensor)] = (tensor, lent)
        return lent
