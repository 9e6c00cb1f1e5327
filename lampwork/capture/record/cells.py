"""Cells of recurrent layers whose sizes vary: `nn.LSTMCell`, `nn.GRUCell`, and `unsafe_chunk`, which splits gates.

ATen's `unsafe_chunk` wants the sizes of all dimensions as numbers, so that a cell would be compiled again for each size
of the batch. Here the same operators are called in the same order with sizes as symbols. All else is left to ATen:
known sizes, errors, other devices, which have kernels of their own for a cell.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import linear

from lampwork.capture.machine import Answer
from lampwork.capture.record.fake import Fake
from lampwork.fakes.views import has_symbols


def _chunk_of(native: Any) -> Any:
    def answer(world: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.keys() <= {"dim"} and len(args) + len(kwargs) in (2, 3):
            x, chunks, dim = (*args, *kwargs.values(), 0)[:3]
            known = type(x) is not Fake or not has_symbols(x)
            if not known and type(chunks) is type(dim) is int and chunks > 0 and -x.dim() <= dim < x.dim():
                return _chunks(x, chunks, dim)
        return world.call_native(native, args, kwargs)

    return answer


def _chunks(x: torch.Tensor, chunks: int, dim: int) -> Any:
    size = x.size(dim)
    if type(size) is int and size == 0:
        return torch.unsafe_chunk(x, chunks, dim)
    return torch.unsafe_split(x, (size + chunks - 1) // chunks, dim)


def _lstm_cell(world: Any, *args: Any, **kwargs: Any) -> Any:
    if kwargs or len(args) != 6 or not isinstance(args[1], (tuple, list)) or len(args[1]) != 2:
        return world.call_native(torch.lstm_cell, args, kwargs)
    x, (hx, cx), w_ih, w_hh, b_ih, b_hh = args
    if not _fits(x, (hx, cx), w_ih, w_hh, b_ih, b_hh):
        return world.call_native(torch.lstm_cell, args, kwargs)
    gates = linear(hx, w_hh, b_hh).add_(linear(x, w_ih, b_ih))
    of_input, of_forgetting, of_cell, of_output = _chunks(gates, 4, 1)
    of_input, of_forgetting = of_input.sigmoid_(), of_forgetting.sigmoid_()
    of_cell, of_output = of_cell.tanh_(), of_output.sigmoid_()
    cell = (of_forgetting * cx).add_(of_input * of_cell)
    return of_output * cell.tanh(), cell


def _gru_cell(world: Any, *args: Any, **kwargs: Any) -> Any:
    if kwargs or len(args) != 6 or not _fits(args[0], (args[1],), *args[2:]):
        return world.call_native(torch.gru_cell, args, kwargs)
    x, hidden, w_ih, w_hh, b_ih, b_hh = args
    reset_of_x, update_of_x, new_of_x = _chunks(linear(x, w_ih, b_ih), 3, 1)
    reset, update, new = _chunks(linear(hidden, w_hh, b_hh), 3, 1)
    reset = reset.add_(reset_of_x).sigmoid_()
    update = update.add_(update_of_x).sigmoid_()
    new = new_of_x.add(new.mul_(reset)).tanh_()
    return (hidden - new).mul_(update).add_(new)


def _fits(x: Any, states: tuple, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> bool:
    """Whether this is a call on the CPU that ATen takes, with sizes that vary."""
    tensors = (x, *states, w_ih, w_hh)
    biases = (b_ih, b_hh)
    if not all(type(each) is Fake and each.is_cpu and each.dim() == 2 for each in tensors):
        return False
    if not all(each is None or (type(each) is Fake and each.is_cpu) for each in biases):
        return False
    if not has_symbols(tensors):
        return False
    return x.size(1) == w_ih.size(1) and all(
        each.size(0) == x.size(0) and each.size(1) == w_hh.size(1) for each in states
    )


NATIVES: dict[Any, Answer] = {
    torch.lstm_cell: _lstm_cell,
    torch.gru_cell: _gru_cell,
    torch.unsafe_chunk: _chunk_of(torch.unsafe_chunk),
    torch.Tensor.unsafe_chunk: _chunk_of(torch.Tensor.unsafe_chunk),
}
