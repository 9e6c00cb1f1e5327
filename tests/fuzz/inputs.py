"""Inputs of generated programs: every kind of value and layout, in memory with guard zones on both sides.

An `Input` describes a tensor; `make` builds it for one call. The tensor's storage is a window in a larger block whose
other bytes hold a pattern. A read outside of the storage sees poison (NaN, or a large whole number), and so do elements
of the storage that the tensor does not cover; a write outside of the storage changes the pattern, which
`Memory.is_intact` checks.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import torch

#: Bytes on each side of a storage.
GUARD_BYTES = 256

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
COMPLEX = ("complex64", "complex128")
LAYOUTS = ("plain", "transposed", "permuted", "strided", "rows", "offset", "expanded", "channels_last")
FLOAT_VALUES = ("normal", "quarters", "special", "zeros", "wide", "unit", "large")
INTEGER_VALUES = ("small", "small", "indices", "extreme")


@dataclass(frozen=True)
class Input:
    """One tensor argument. `shape` holds numbers, and names of sizes that vary between calls. `leaf` says how a tensor
    that requires grad is made: "" does not require grad, "leaf" is a leaf, others name the view taken of a leaf."""

    shape: tuple[int | str, ...]
    dtype: str
    layout: str = "plain"
    values: str = "normal"
    leaf: str = ""

    def sizes(self, known: dict[str, int]) -> tuple[int, ...]:
        return tuple(known[each] if isinstance(each, str) else each for each in self.shape)


class Memory:
    """A storage in the middle of a larger block. `tensor(...)` gives views of the storage."""

    def __init__(self, elements: int, dtype: torch.dtype, device: str = "cpu") -> None:
        self.dtype, self.elements = dtype, elements
        size_bytes = elements * dtype.itemsize
        # True; NaN in every float type; large as a whole number.
        fill = 1 if dtype == torch.bool else 0xFF if dtype.is_floating_point or dtype.is_complex else 0x7F
        self._block = bytearray([fill]) * (size_bytes + 2 * GUARD_BYTES)
        self._pattern = bytes([fill]) * GUARD_BYTES
        if device != "cpu":
            # The window is the storage's middle there: what a kernel writes outside of it is not noticed.
            poison = math.nan if dtype.is_floating_point or dtype.is_complex else 1 if dtype == torch.bool else 0x7F
            self.flat = torch.full((elements,), poison, dtype=dtype, device=device)
        elif elements:
            self.flat = torch.frombuffer(self._block, dtype=dtype, count=elements, offset=GUARD_BYTES)
        else:
            self.flat = torch.empty(0, dtype=dtype)

    def is_intact(self) -> bool:
        return self._block[:GUARD_BYTES] == self._pattern and self._block[-GUARD_BYTES:] == self._pattern


def contiguous_strides(shape: tuple[int, ...]) -> list[int]:
    strides, step = [0] * len(shape), 1
    for dim in reversed(range(len(shape))):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return strides


def placed(shape: tuple[int, ...], layout: str) -> tuple[list[int], int, int]:
    """Strides, storage offset, and elements of the storage for a tensor of that layout."""
    rank = len(shape)
    order = list(range(rank))
    if layout == "transposed" and rank > 1:
        order[0], order[-1] = order[-1], order[0]
    elif layout == "permuted" and rank > 1:
        order = order[1:] + order[:1]
    elif layout == "channels_last" and rank in (4, 5):
        order = [0, *range(2, rank), 1]
    dense = contiguous_strides(tuple(shape[dim] for dim in order))
    strides = [0] * rank
    for place, dim in enumerate(order):
        strides[dim] = dense[place]
    offset = 3 if layout in ("offset", "rows") else 0
    if layout == "strided" and rank:
        strides = [2 * step for step in strides]
    elif layout == "rows" and rank:
        # The first columns of a wider matrix.
        strides = [step if dim == rank - 1 else step // max(shape[-1], 1) * (shape[-1] + 2) for dim, step in enumerate(strides)]  # fmt: skip
    elif layout == "expanded" and rank:
        at = 0 if rank < 3 else rank - 2
        kept = tuple(1 if dim == at else size for dim, size in enumerate(shape))
        strides = [0 if dim == at else step for dim, step in enumerate(contiguous_strides(kept))]
    reach = 0 if 0 in shape else 1 + sum((size - 1) * step for size, step in zip(shape, strides))
    return strides, offset, offset + reach + (2 if layout in ("offset", "rows", "strided") else 0)


def values_of(shape: tuple[int, ...], dtype: torch.dtype, kind: str, seed: int) -> torch.Tensor:
    """A contiguous tensor of such values: the same ones whatever the default type is, which runs in double precision
    change."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype.is_complex:
        parts = [torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2)]
        if kind == "quarters":
            parts = [(4 * part).round() / 4 for part in parts]
        return torch.complex(*parts).to(dtype)
    if not dtype.is_floating_point:
        if kind == "extreme":
            info = torch.iinfo(dtype)
            choices = [info.min, info.max, 0, 1, 2, -1 if info.min else 3, info.max // 2]
            chosen = torch.randint(0, 7, shape, generator=generator).flatten().tolist()
            return torch.tensor([choices[each] for each in chosen], dtype=dtype).view(shape)
        low, high = (0, 4) if kind == "indices" or dtype == torch.uint8 else (-5, 9)
        return torch.randint(low, high, shape, generator=generator).to(dtype)
    normal = torch.randn(shape, generator=generator, dtype=torch.float64)
    info = torch.finfo(dtype)
    if kind == "quarters":
        return (2 * normal).round().div(4).to(dtype)
    if kind == "unit":
        return torch.rand(shape, generator=generator, dtype=torch.float64).to(dtype)
    if kind == "large":
        return (normal + 1000).to(dtype)
    if kind == "wide":
        powers = torch.randint(-10, 11, shape, generator=generator).float() * (math.log2(info.max) / 12)
        return (normal * torch.pow(2.0, powers)).to(dtype)
    if kind in ("special", "zeros"):
        if kind == "zeros":
            chosen = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0]
        else:
            chosen = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, info.max, -info.max, info.tiny,
                      -info.smallest_normal, info.smallest_normal * info.eps * 3]  # fmt: skip
        pool = torch.tensor(chosen, dtype=dtype)
        picked = pool[torch.randint(0, len(chosen), shape, generator=generator)]
        share = 0.3 if kind == "special" else 0.8
        drawn = torch.rand(shape, generator=generator, dtype=torch.float32)
        return torch.where(drawn < share, picked, normal.to(dtype))
    return normal.to(dtype)


#: Views of a leaf that a program gets as an argument. Each function undoes itself in `leaf_shape`.
LEAF_VIEWS = ("transpose", "slice", "expand", "narrow")


@dataclass
class Argument:
    """A tensor argument of one call, the leaf that it is a view of (or itself), and its memory."""

    tensor: torch.Tensor
    leaf: torch.Tensor
    memory: Memory


def make(spec: Input, sizes: dict[str, int], seed: int, wide: bool = False, device: str = "cpu") -> Argument:
    """The tensor that `spec` describes, with values of that seed; of double precision where `wide` says so."""
    shape = spec.sizes(sizes)
    dtype = getattr(torch, spec.dtype)
    made_dtype = widened(dtype) if wide else dtype
    view = spec.leaf if spec.leaf in LEAF_VIEWS and shape else ""
    if view == "transpose":
        shape = (shape[-1], *shape[1:-1], shape[0]) if len(shape) > 1 else shape
    elif view == "slice":
        shape = (2 * shape[0], *shape[1:])
    elif view == "narrow":
        shape = (*shape[:-1], shape[-1] + 3)
    elif view == "expand":
        shape = (1, *shape[1:])
    strides, offset, elements = placed(shape, spec.layout)
    memory = Memory(elements, made_dtype, device)
    tensor = memory.flat.as_strided(shape, strides, offset)
    source = values_of(shape, dtype, spec.values, seed).to(made_dtype)
    if 0 in strides:
        where = tuple(slice(0, 1) if step == 0 else slice(None) for step in strides)
        tensor[where] = source[where]
    else:
        tensor.copy_(source)
    leaf = tensor
    if spec.leaf:
        leaf = tensor.detach().requires_grad_()
        tensor = leaf
        if view == "transpose":
            tensor = leaf.transpose(0, -1) if leaf.dim() > 1 else leaf.view(leaf.shape)
        elif view == "slice":
            tensor = leaf[1::2]
        elif view == "narrow":
            tensor = leaf.narrow(-1, 2, shape[-1] - 3)
        elif view == "expand":
            tensor = leaf.expand(spec.sizes(sizes))
    return Argument(tensor, leaf, memory)


def widened(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def any_input(choose: random.Random, shape: tuple, dtype: str, grad: bool) -> Input:
    """An input of that shape and type, of any layout and values."""
    layout = choose.choice(LAYOUTS) if choose.random() < 0.6 else "plain"
    if dtype in FLOATS:
        kind = choose.choice(FLOAT_VALUES) if choose.random() < 0.5 else choose.choice(("normal", "quarters"))
        if grad:
            kind = choose.choice(("normal", "normal", "quarters", "unit", "zeros", "large"))
    elif dtype in COMPLEX:
        kind = choose.choice(("normal", "quarters"))
    else:
        kind = choose.choice(INTEGER_VALUES)
    leaf = ""
    if grad and dtype in FLOATS and choose.random() < 0.85:
        leaf = choose.choice(("leaf", "leaf", "leaf", *LEAF_VIEWS))
    return Input(shape, dtype, layout, kind, leaf)
