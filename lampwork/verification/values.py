"""Inputs of a program as every stage gets them: copies that share memory as the originals do, and what a run leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from lampwork import _torch
from lampwork._torch import storage_key
from lampwork.debug.interpret.inputs import copies
from lampwork.ir.record import record

#: What generators are set to before each run, so that all stages draw the same numbers.
SEED = 11


@record(frozen=False)
class Run:
    """What one run of a stage gave: its results, and its inputs afterwards."""

    results: list[Any]
    inputs: list[Any]

    def leaves(self) -> list[tuple[str, Any]]:
        """All values with what they are called."""
        results = [(f"result {place}", value) for place, value in enumerate(self.results)]
        return results + [(f"input {place} afterwards", value) for place, value in enumerate(self.inputs)]


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


def run_on(
    values: Sequence[Any],
    call: Callable[[list[Any]], Sequence[Any]],
    mode: AbstractContextManager[Any] | None = None,
) -> Run:
    """What `call` gives and leaves behind of copies of `values`. `mode`: active meanwhile."""
    inputs = copies(values)
    torch.default_generator.manual_seed(SEED)
    with torch.no_grad(), _torch.below_autograd(), nullcontext() if mode is None else mode:
        results = list(call(inputs))
    return Run(results, inputs)
