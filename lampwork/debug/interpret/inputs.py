"""Copies of a program's inputs that share memory as the originals do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from lampwork import _torch


def copies(values: Sequence[object]) -> list[object]:
    """Values with memory of their own, which share memory and lie in it as the originals do."""
    storages: dict[int, torch.UntypedStorage] = {}
    made: dict[int, Any] = {}
    with torch.no_grad(), torch.inference_mode(False):
        return [_copy(value, storages, made) for value in values]


def _copy(value: object, storages: dict[int, torch.UntypedStorage], made: dict[int, object]) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if id(value) in made:
        return made[id(value)]
    if value.layout != torch.strided:
        copied = value.detach().clone()
    else:
        plain = value.detach()
        key = _torch.storage_key(plain)
        if key not in storages:
            storages[key] = plain.untyped_storage().clone()
        copied = torch.empty(0, dtype=plain.dtype, device=plain.device)
        copied.set_(storages[key], plain.storage_offset(), plain.shape, plain.stride())
        if plain.is_conj():
            copied = copied.conj()
        if plain.is_neg():
            copied = torch.ops.aten._neg_view.default(copied)
    made[id(value)] = copied
    return copied
