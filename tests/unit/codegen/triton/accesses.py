"""`Accesses`: what the programs of an interpreted kernel load and store, and what of it is wrong on a GPU.

Programs run one after the other in the interpreter, where a read beyond a buffer finds some memory and a location that
one program reads and another one writes has one of its values. Here both are errors, whatever the values are.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch

#: Bytes before and behind a buffer that loads of rows which begin anywhere may touch: `codegen/triton/unaligned_rows`.
LINE_BYTES, VECTOR_BYTES = 128, 16


@dataclass
class Accesses:
    """Addresses of elements and the programs that reach for them, by kind: load, store, atomic."""

    found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = field(default_factory=dict)

    def add(self, kind: str, program: int, pointers: Any, mask: Any) -> None:
        inside = np.broadcast_to(np.asarray(mask.data, dtype=bool), np.shape(pointers.data))
        addresses = np.asarray(pointers.data)[inside].astype(np.int64)
        if not (addresses[1:] > addresses[:-1]).all():
            addresses = np.unique(addresses)
        if addresses.size:
            self.found.setdefault(kind, []).append((addresses, np.full(addresses.size, program)))

    def of(self, kind: str) -> tuple[np.ndarray, np.ndarray]:
        parts = self.found.get(kind, [])
        if not parts:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return tuple(np.concatenate(each) for each in zip(*parts))  # type: ignore[return-value]

    def check(self, memory: Sequence[torch.Tensor]) -> None:
        """Raises `AssertionError` for an access outside of `memory`, and for a race between programs. Several may store
        to one location: where indices repeat, eager leaves open which value stays."""
        spans = [(each.data_ptr(), each.data_ptr() + each.numel() * each.element_size()) for each in memory]
        for kind in self.found:
            addresses = self.of(kind)[0]
            before, behind = (LINE_BYTES, VECTOR_BYTES) if kind == "load" else (0, 0)
            inside = np.zeros(addresses.size, bool)
            for start, end in spans:
                if start == end:  # memory of nothing is nowhere
                    continue
                inside |= (addresses >= start - before) & (addresses < end + behind)
            assert inside.all(), f"{(~inside).sum()} {kind}s outside of the kernel's memory"
        stored, owners = self.of("store")
        order = np.lexsort((owners, stored))
        stored, owners = stored[order], owners[order]
        loaded, readers = self.of("load")
        assert not np.isin(self.of("atomic")[0], np.concatenate((stored, loaded))).any(), "atomic, and not"
        if stored.size:
            places = np.minimum(np.searchsorted(stored, loaded), stored.size - 1)
            others = (stored[places] == loaded) & (owners[places] != readers)
            assert not others.any(), "a program loads what another one stores"


@contextmanager
def watched() -> Iterator[Accesses]:
    """The accesses of kernels that are interpreted inside."""
    accesses = Accesses()
    builder = importlib.import_module("triton.runtime.interpreter").InterpreterBuilder
    load, store, atomic = builder.create_masked_load, builder.create_masked_store, builder.create_atomic_rmw

    def masked_load(self: Any, pointers: Any, mask: Any, *options: Any) -> Any:
        accesses.add("load", self.grid_idx[0], pointers, mask)
        return load(self, pointers, mask, *options)

    def masked_store(self: Any, pointers: Any, value: Any, mask: Any, *options: Any) -> Any:
        accesses.add("store", self.grid_idx[0], pointers, mask)
        return store(self, pointers, value, mask, *options)

    def atomic_rmw(self: Any, operation: Any, pointers: Any, value: Any, mask: Any, *options: Any) -> Any:
        accesses.add("atomic", self.grid_idx[0], pointers, mask)
        return atomic(self, operation, pointers, value, mask, *options)

    replaced = {"create_masked_load": masked_load, "create_masked_store": masked_store, "create_atomic_rmw": atomic_rmw}
    with mock.patch.multiple(builder, **replaced):
        yield accesses
