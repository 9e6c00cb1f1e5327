"""Our operators for packed sequences: batches of sequences of several lengths, step by step and without their padding.

    data, batch_sizes = pack_padded(x, lengths, batch_first)                     f32[u0, 4] and i64[u1]
    x, lengths = pad_packed(data, batch_sizes, batch_first, 0.0, None, 3)        f32[u1, 3, 4] and i64[3]

ATen's read lengths, and sizes of batches, where they are decomposed. A graph holds these as they are, with their
derivatives, which give what autograd makes of ATen's.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._ops import OpOverload

from lampwork._torch.modes import with_autograd, without_modes
from lampwork._torch.private import private

PACK = "pack_padded(Tensor x, Tensor lengths, bool batch_first) -> (Tensor, Tensor)"
PAD = (
    "pad_packed(Tensor data, Tensor batch_sizes, bool batch_first, Scalar padding_value, SymInt? total_length, "
    "SymInt batch) -> (Tensor, Tensor)"
)
PACK_BACKWARD = (
    "pack_padded_backward(Tensor tangent, Tensor batch_sizes, bool batch_first, SymInt length, SymInt batch) -> Tensor"
)
PAD_BACKWARD = (
    "pad_packed_backward(Tensor tangent, Tensor batch_sizes, bool batch_first, SymInt total_length, SymInt steps) "
    "-> Tensor"
)
_pack: Any = private("_VF._pack_padded_sequence")
_pad: Any = private("_VF._pad_packed_sequence")


def pack_padded(x: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> Any:
    return _pack(x, lengths, batch_first)


def pad_packed(
    data: torch.Tensor, batch_sizes: torch.Tensor, batch_first: bool, padding_value: Any, total_length: int | None,
    batch: int,
) -> Any:  # fmt: skip
    """`total_length`: to what length, that of the longest sequence if None. `batch`: how many sequences there are, as
    `batch_sizes` says, too."""
    return _pad(data, batch_sizes, batch_first, padding_value, -1 if total_length is None else total_length)


def pack_padded_backward(
    tangent: torch.Tensor, batch_sizes: torch.Tensor, batch_first: bool, length: int, batch: int
) -> torch.Tensor:
    """The gradient of `x`, of as many steps and sequences as `length` and `batch` say."""
    size = ((batch, length) if batch_first else (length, batch)) + tuple(tangent.size()[1:])
    return torch.ops.aten._pack_padded_sequence_backward.default(tangent, size, batch_sizes, batch_first)


def pad_packed_backward(
    tangent: torch.Tensor, batch_sizes: torch.Tensor, batch_first: bool, total_length: int, steps: int
) -> torch.Tensor:
    """The gradient of `data`, of as many `steps`."""
    with torch.inference_mode(False), with_autograd(), without_modes(), torch.enable_grad():
        data = tangent.new_zeros((steps, *tangent.size()[2:])).requires_grad_()
        made, _ = _pad(data, batch_sizes, batch_first, 0.0, total_length)
        (found,) = torch.autograd.grad(made, data, tangent.detach())
    return found.contiguous()


@functools.cache
def packing_operators() -> tuple[OpOverload, OpOverload, OpOverload, OpOverload]:
    """`lampwork::pack_padded`, `lampwork::pad_packed`, and their derivatives."""
    from lampwork._torch.library import overload

    names = ("pack_padded", "pad_packed", "pack_padded_backward", "pad_packed_backward")
    one, two, three, four = (overload(f"lampwork::{name}") for name in names)
    return one, two, three, four
