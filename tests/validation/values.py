"""Inputs of a program as every stage gets them: copies that share memory as the originals do, and what a run leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lampwork import _torch

#: What generators are set to before each run, so that all stages draw the same numbers.
SEED = 11


@dataclass
class Run:
    """What one run of a stage gave: its results, and its inputs afterwards."""

    results: list[Any]
    inputs: list[Any]

    def leaves(self) -> list[tuple[str, Any]]:
        """All values with what they are called."""
        results = [(f"result {place}", value) for place, value in enumerate(self.results)]
        return results + [(f"input {place} afterwards", value) for place, value in enumerate(self.inputs)]


def storage_key(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def copies(values: Sequence[Any]) -> list[Any]:
    """Values with memory of their own, which share memory and lie in it as the originals do."""
    storages: dict[int, torch.UntypedStorage] = {}
    made: dict[int, Any] = {}
    with torch.no_grad(), torch.inference_mode(False):
        return [_copy(value, storages, made) for value in values]


def _copy(value: Any, storages: dict[int, torch.UntypedStorage], made: dict[int, Any]) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if id(value) in made:
        return made[id(value)]
    if value.layout != torch.strided:
        copied = value.detach().clone()
    else:
        plain = value.detach()
        key = storage_key(plain)
        if key not in storages:
            storages[key] = plain.untyped_storage().clone()
        copied = torch.empty(0, dtype=plain.dtype)
        copied.set_(storages[key], plain.storage_offset(), plain.shape, plain.stride())
        if plain.is_conj():
            copied = copied.conj()
        if plain.is_neg():
            copied = torch._neg_view(copied)
    made[id(value)] = copied
    return copied


def wide_copies(values: Sequence[Any]) -> list[Any]:
    """Values whose floats are float64, which share memory as the originals do.

    Raises `ValueError` where memory is shared by values of several types.
    """
    dtypes: dict[int, torch.dtype] = {}
    bases: dict[int, torch.Tensor] = {}
    found = []
    for value in values:
        if not isinstance(value, torch.Tensor):
            found.append(value)
            continue
        plain, key = value.detach(), storage_key(value)
        if plain.is_conj() or plain.is_neg() or plain.dtype.is_complex or plain.dtype.itemsize == 0:
            raise ValueError("complex numbers")
        if dtypes.setdefault(key, plain.dtype) != plain.dtype:
            raise ValueError("memory of several types")
        if key not in bases:
            whole = torch.empty(0, dtype=plain.dtype).set_(plain.untyped_storage())
            bases[key] = whole.to(torch.float64 if plain.dtype.is_floating_point else plain.dtype, copy=True)
        found.append(bases[key].as_strided(plain.shape, plain.stride(), plain.storage_offset()))
    return found


def run_on(values: Sequence[Any], call: Callable[[list[Any]], Sequence[Any]]) -> Run:
    """What `call` gives and leaves behind of copies of `values`."""
    inputs = copies(values)
    torch.default_generator.manual_seed(SEED)
    with torch.no_grad(), _torch.below_autograd():
        results = list(call(inputs))
    return Run(results, inputs)
