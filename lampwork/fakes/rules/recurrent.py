"""Shape rules of recurrent layers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from lampwork import _torch
from lampwork.fakes.shapes import Spec, contiguous, rule


@rule("mkldnn_rnn_layer")
def mkldnn_rnn_layer(x: torch.Tensor, w0: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, w3: torch.Tensor,
                     hx: torch.Tensor, cx: torch.Tensor, reverse: bool, batch_sizes: Sequence[int], mode: int,
                     hidden_size: int, num_layers: int, has_biases: bool, bidirectional: bool, batch_first: bool,
                     train: bool) -> tuple[Spec, ...]:  # fmt: skip
    """The workspace is what oneDNN wants for these sizes, which only it knows; there is one where grad mode is on."""
    length, batch = (x.size()[1], x.size()[0]) if batch_first else (x.size()[0], x.size()[1])
    shape = (batch, length, hidden_size) if batch_first else (length, batch, hidden_size)
    bytes_ = 0
    if torch.is_grad_enabled():
        sizes = tuple(tuple(int(size) for size in each.size()) for each in (x, w0, w1, w2, w3, hx, cx))
        others = (reverse, tuple(batch_sizes), mode, hidden_size, num_layers, has_biases, bidirectional, batch_first)
        bytes_ = _workspace_bytes(sizes, x.dtype, (*others, train))
    states = [Spec(tuple(each.size()), contiguous(each.size()), each.dtype) for each in (hx, cx)]
    return Spec(shape, contiguous(shape), x.dtype), *states, Spec((bytes_,), (1,), torch.uint8)


@rule("mkldnn_rnn_layer_backward")
def mkldnn_rnn_layer_backward(x: torch.Tensor, w0: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, w3: torch.Tensor,
                              hx: torch.Tensor, cx: torch.Tensor, *rest: Any) -> tuple[Spec, ...]:  # fmt: skip
    """In single precision, whatever the layer computes in: autograd converts. (PyTorch 2.11's rule is another.)"""
    mode, hidden_size = rest[7:9]
    bias = (4 * hidden_size,) if mode == _GRU else tuple(w2.size())
    shapes = (*(tuple(each.size()) for each in (x, w0, w1)), bias, bias, tuple(hx.size()), tuple(cx.size()))
    return tuple(Spec(shape, contiguous(shape), torch.float32) for shape in shapes)


#: The number of a kind of layer.
_GRU = 3


@rule("lampwork::recurrent_layer")
def layer(
    kind: str, x: torch.Tensor, states: Any, params: object, biases: bool, bidirectional: bool, differentiated: Any,
    batch_sizes: object,
) -> tuple[Spec | None, ...]:  # fmt: skip
    """What each kind of layer returns, whichever library runs it."""
    shape = (*x.size()[:-1], states[0].size()[-1] * (2 if bidirectional else 1))
    made = [Spec(tuple(each.size()), contiguous(each.size()), x.dtype) for each in states]
    none = Spec((0,), (1,), x.dtype)
    return (
        Spec(shape, contiguous(shape), x.dtype),
        *made,
        *[none] * (2 - len(made)),
        Spec((1 if any(differentiated) else 0,), (1,), torch.int64),
    )


@rule("lampwork::recurrent_layer_backward")
def layer_backward(
    kind: str, tangents: object, x: torch.Tensor, states: Any, params: Any, biases: bool, bidirectional: bool,
    history: torch.Tensor, wanted: Any, batch_sizes: object,
) -> tuple[Spec, ...]:  # fmt: skip
    none = Spec((0,), (1,), x.dtype)
    specs = [
        Spec(tuple(each.size()), contiguous(each.size()), each.dtype) if is_wanted else none
        for each, is_wanted in zip((x, *states, *params), wanted, strict=True)
    ]
    count = 1 + len(states)
    return *specs[:count], *[none] * (2 - len(states)), *specs[count:], *[none] * (8 - len(params))


@rule("lampwork::pad_packed")
def pad_packed(
    data: torch.Tensor, batch_sizes: torch.Tensor, batch_first: bool, padding_value: object, total_length: int | None,
    batch: int,
) -> tuple[Spec, ...]:  # fmt: skip
    length = batch_sizes.size()[0] if total_length is None else total_length
    made = padded((length, batch, *data.size()[1:]), batch_first, data.dtype)
    return made, Spec((batch,), (1,), torch.int64)


def padded(size: tuple[int, ...], batch_first: bool, dtype: torch.dtype) -> Spec:
    """A batch of sequences as ATen makes it: [length, batch, ...] in memory."""
    (length, sequence, *inner), (steps, batch, *rest) = contiguous(size), size
    if batch_first:
        return Spec((batch, steps, *rest), (sequence, length, *inner), dtype)
    return Spec(size, (length, sequence, *inner), dtype)


@rule("lampwork::pad_packed_backward")
def pad_packed_backward(
    tangent: torch.Tensor, batch_sizes: object, batch_first: bool, total_length: int, steps: int
) -> Spec:
    shape = (steps, *tangent.size()[2:])
    return Spec(shape, contiguous(shape), tangent.dtype)


@rule("lampwork::pack_padded_backward")
def pack_padded_backward(
    tangent: torch.Tensor, batch_sizes: object, batch_first: bool, length: int, batch: int
) -> Spec:
    return padded((length, batch, *tangent.size()[1:]), batch_first, tangent.dtype)


@functools.cache
def _workspace_bytes(sizes: tuple, dtype: torch.dtype, others: tuple) -> int:
    """What a layer of these sizes saves for its derivative: one is run."""
    with _torch.without_modes(), torch.inference_mode(False), torch.no_grad():
        tensors = [torch.zeros(size, dtype=dtype) for size in sizes]
        with torch.enable_grad():
            reverse, batch_sizes, *rest = others
            made = torch.ops.aten.mkldnn_rnn_layer.default(*tensors, reverse, list(batch_sizes), *rest)
    return made[3].numel()
