"""Memory that knows which of its bytes hold something, for kernels and calls of ATen while a program is checked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from lampwork.ir.dtype import FLOAT8, ITEM_SIZE_BYTES
from lampwork.ir.interpret import array_dtype, round_bfloat16
from lampwork.ir.kernel_interpret import KernelFault


class Block:
    """Memory that begins at the start of a storage. `defined`: for each byte, whether something was written there."""

    def __init__(self, tensor: torch.Tensor, defined: bool) -> None:
        self.tensor = tensor
        self.bytes = tensor.numpy()
        self.defined = np.full(len(self.bytes), defined)

    @classmethod
    def fresh(cls, size_bytes: int) -> Block:
        """Memory that nothing was written to. Its bytes are no number that a program would compute."""
        return cls(torch.full((max(size_bytes, 1),), 0xFB, dtype=torch.uint8), False)

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Block:
        """All of a tensor's storage, which holds what somebody else wrote."""
        whole = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
        return cls(whole, True)

    def forget(self, start: int, size_bytes: int) -> None:
        """From now on these bytes hold nothing."""
        self.defined[start : start + size_bytes] = False
        self.bytes[start : start + size_bytes] = 0xFB


class Cells:
    """A kernel's parameter: `count` elements of a block from byte `start` on."""

    def __init__(self, name: str, block: Block, start: int, count: int, dtype: str) -> None:
        size = ITEM_SIZE_BYTES[dtype]
        self.name, self.count, self.dtype = name, count, dtype
        raw = block.bytes[start : start + count * size]
        self.array = raw.view("uint16" if dtype == "bfloat16" else array_dtype(dtype))
        self.defined = block.defined[start : start + count * size].reshape(-1, size)
        if len(self.array) != count:
            raise KernelFault(f"{name}: {count} elements do not fit into their memory")

    def _check(self, places: np.ndarray) -> None:
        outside = (places < 0) | (places >= self.count)
        if outside.any():
            raise KernelFault(f"{self.name}[{places[outside][0]}] is outside its {self.count} elements")

    def load(self, places: np.ndarray) -> np.ndarray:
        self._check(places)
        known = self.defined[places, 0] if self.count else np.ones(0, bool)
        if not known.all():
            raise KernelFault(f"{self.name}[{places[~known][0]}] is read and nothing was written there")
        return from_bits(self.array[places], self.dtype)

    def store(self, places: np.ndarray, values: np.ndarray) -> None:
        self._check(places)
        bits = to_bits(values, self.dtype)
        self.array[places] = bits
        if len(places) > 1 and len(np.unique(places)) < len(places):
            there = self.array[places]
            if not ((there == bits) | ((there != there) & (bits != bits))).all():
                raise KernelFault(f"{self.name}: iterations in any order store different values to one place")
        self.defined[places] = True

    def add(self, places: np.ndarray, values: np.ndarray) -> None:
        before = self.load(places)
        if self.dtype == "bfloat16":  # each addition rounds
            for place, value in zip(places, values):
                total = from_bits(self.array[place : place + 1], self.dtype) + value
                self.array[place : place + 1] = to_bits(total, self.dtype)
            return
        np.add.at(self.array, places, values.astype(before.dtype))


def from_bits(bits: np.ndarray, dtype: str) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else bits


def to_bits(values: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bfloat16":
        rounded = np.ascontiguousarray(round_bfloat16(values.astype(np.float32)))
        return (rounded.view(np.uint32) >> 16).astype(np.uint16)
    return values if dtype in FLOAT8 else values.astype(array_dtype(dtype))


def strided_bytes(
    defined: np.ndarray, start: int, shape: Sequence[int], strides: Sequence[int], item: int
) -> np.ndarray:
    """For each element of a strided view, the flags of its first byte; a view, which can be written to."""
    if 0 in shape:
        return np.zeros(tuple(shape), bool)
    return np.lib.stride_tricks.as_strided(defined[start:], tuple(shape), tuple(step * item for step in strides))
