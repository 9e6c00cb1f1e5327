"""Recurrent layers whose length or batch varies: `nn.LSTM`, `nn.GRU`, `nn.RNN`.

    torch.gru(%x, %state, params, ..., num_layers=2, dropout=0.1, train=True)
        ->      %y, %last, .. = recurrent_layer("gru", %x, [%state[:1]], params[:4], ..);  %y = dropout(%y, 0.1)
                %y, %last_1, .. = recurrent_layer("gru", %y, [%state[1:]], params[4:], ..);  cat([%last, %last_1])

ATen loops over the steps of a sequence, so that its own operators are a program for each length. Here each layer is one
call of ATen's, and what ATen does between layers is recorded as it is. Known sizes stay with the steps: they fuse.
The last result stands for what autograd saves of a layer, which its derivative uses up (`_torch/recurrent.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from lampwork import _torch
from lampwork.capture.outside.overlay import Break
from lampwork.capture.record.fake import Fake
from lampwork.fakes.views import has_symbols

RECURRENT = frozenset({torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu})


def recurrent(world: Any, kind: str, args: tuple, kwargs: dict) -> Any:
    """What `torch.<kind>` returns; NotImplemented where that should be called itself: known sizes, errors, devices with
    kernels of their own for all steps, transforms. Packed sequences: `packed.py`."""
    if kwargs or len(args) != 9 or _torch.active_transforms() or world.process.dual_levels:
        return NotImplemented
    x, states, params, biases, layers, dropout, train, bidirectional, batch_first = args
    states = (states,) if kind != "lstm" else tuple(states) if isinstance(states, (tuple, list)) else ()
    if not isinstance(params, (tuple, list)) or not all(type(each) is Fake for each in (x, *states, *params)):
        return NotImplemented
    if not are_layers(biases, layers, dropout, train, bidirectional) or type(batch_first) is not bool:
        return NotImplemented
    if not has_symbols((x, *states)) or torch.is_autocast_enabled("cpu"):
        return NotImplemented
    directions = 2 if bidirectional else 1
    if x.dim() != 3 or not parameters_fit(
        kind, x, x.size(0 if batch_first else 1), states, params, layers, directions, biases
    ):
        return NotImplemented
    y = x.transpose(0, 1) if batch_first else x
    rate = dropout if train else 0.0
    y, *ends = run_layers(world.recorder, kind, y, states, params, biases, layers, rate, directions)
    return (y.transpose(0, 1) if batch_first else y, *ends)


def run_layers(
    recorder: Any, kind: str, y: Any, states: tuple, params: Any, biases: bool, layers: int, dropout: float,
    directions: int, batch_sizes: Any = None,
) -> tuple:  # fmt: skip
    """What the layers return, [length, batch, features] first; of packed sequences [steps, features]."""
    each_layer = directions * (4 if biases else 2)
    last: list[tuple] = []
    for index in range(layers):
        own = [each.narrow(0, index * directions, directions) if layers > 1 else each for each in states]
        weights = params[index * each_layer : (index + 1) * each_layer]
        grad = torch.is_grad_enabled()
        differentiated = [grad and each.requires_grad for each in (y, *own, *weights)]
        call = _Call(recorder, kind, biases, directions == 2, len(states), grad, differentiated, batch_sizes)
        y, *ends = _Layer.apply(call, y, *own, *weights)
        last.append(tuple(ends))
        if dropout and index < layers - 1:
            y = torch.dropout(y, dropout, True)
    return y, *[torch.cat(each, 0) if layers > 1 else each[0] for each in zip(*last)]


def are_layers(biases: Any, layers: Any, dropout: Any, train: Any, bidirectional: Any) -> bool:
    """Whether these say how layers are built."""
    if type(layers) is not int or layers < 1 or type(dropout) not in (int, float) or not 0 <= dropout <= 1:
        return False
    return all(type(each) is bool for each in (biases, train, bidirectional))


def parameters_fit(
    kind: str, x: Any, batch: Any, states: tuple, params: Any, layers: int, directions: int, biases: bool
) -> bool:  # fmt: skip
    """Whether all sizes and types are those that the layers want. `x`: of as many features as the last size says."""
    if len(states) != (2 if kind == "lstm" else 1) or not x.dtype.is_floating_point:
        return False
    if len(params) != layers * directions * (4 if biases else 2):
        return False
    if not all(each.is_cpu and each.dtype is x.dtype for each in (x, *states, *params)):
        return False
    first = states[0]
    if not all(each.dim() == 3 for each in states) or type(first.size(2)) is not int:
        return False
    hidden, features = first.size(2), x.size(-1)
    wanted = (layers * directions, batch, hidden)
    if any(size != want for each in states for size, want in zip(each.size(), wanted)):
        return False
    rows = _torch.KINDS[kind] * hidden
    step = 4 if biases else 2
    for index in range(0, len(params), step):
        w_ih, w_hh, *rest = params[index : index + step]
        own = features if index < directions * step else hidden * directions
        if tuple(w_ih.size()) != (rows, own) or tuple(w_hh.size()) != (rows, hidden):
            return False
        if any(tuple(each.size()) != (rows,) for each in rest):
            return False
    return True


def refuse_written(recorder: Any, batch_sizes: Any) -> None:
    """Raises `Break` where the program wrote to the sizes of batches: ATen has read them before."""
    if batch_sizes is not None and _torch.storage_key(batch_sizes) in recorder.written:
        raise Break("autograd", "a packed sequence's sizes of batches are written before its gradients are taken")


class _Call(NamedTuple):
    """What is no tensor of a layer's call. `grad`: whether grad mode is on in the program; `differentiated`: which of
    the tensors gradients are taken of."""

    recorder: Any
    kind: str
    biases: bool
    bidirectional: bool
    states: int
    grad: bool
    differentiated: list[bool]
    batch_sizes: Any

    def apart(self, tensors: Sequence[Any]) -> tuple[Any, list, list]:
        """The input, the states, the parameters."""
        return tensors[0], list(tensors[1 : 1 + self.states]), list(tensors[1 + self.states :])


class _Layer(torch.autograd.Function):
    """One layer, and how it is differentiated."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: Any) -> Any:
        ctx.call = call
        operator, _ = _torch.recurrent_operators()
        layer = (call.kind, *call.apart(tensors), call.biases, call.bidirectional)
        arguments = (*layer, call.differentiated, call.batch_sizes)
        with torch.set_grad_enabled(call.grad):  # which is noted, for eager to run it again
            *made, history = call.recorder.call(operator, arguments, {})
        ctx.save_for_backward(*tensors, history)
        return tuple(made[: 1 + call.states])

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        if torch.is_grad_enabled():
            raise Break("autograd", "gradients of a recurrent layer of varying sizes are differentiated again")
        refuse_written(ctx.call.recorder, ctx.call.batch_sizes)
        call, wanted = ctx.call, list(ctx.needs_input_grad[1:])
        _, operator = _torch.recurrent_operators()
        *tensors, history = ctx.saved_tensors
        layer = (call.kind, list(tangents), *call.apart(tensors), call.biases, call.bidirectional)
        arguments = (*layer, history, wanted, call.batch_sizes)
        made = call.recorder.call(operator, arguments, {})
        gradients = (*made[: 1 + call.states], *made[3:])
        return None, *[each if is_wanted else None for each, is_wanted in zip(gradients, wanted)]
