"""Our operators for a recurrent layer whose length and batch may vary, or whose sequences are packed: ATen's own layer,
and its derivative.

ATen's layers are written in terms of other operators, a few for each step of the sequence, which no graph of varying
lengths can hold. In a program, a layer that is differentiated has a fourth result, a tensor whose memory belongs to
what autograd has saved: that lives as long as the tensor, and the derivative finds it by the address.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

import numpy
import torch
from torch._ops import OpOverload

from lampwork._torch.modes import with_autograd, without_modes

#: Gates of the kinds of layer: how many times the size of the state the weights have rows.
KINDS = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}

FORWARD = (
    "recurrent_layer(str kind, Tensor x, Tensor[] states, Tensor[] params, bool biases, bool bidirectional, "
    "bool[] differentiated, Tensor? batch_sizes) -> (Tensor, Tensor, Tensor, Tensor)"
)
BACKWARD = (
    "recurrent_layer_backward(str kind, Tensor[] tangents, Tensor x, Tensor[] states, Tensor[] params, bool biases, "
    "bool bidirectional, Tensor history, bool[] wanted, Tensor? batch_sizes) -> (" + ", ".join(["Tensor"] * 11) + ")"
)


class _History(numpy.ndarray):
    """The memory of a layer's fourth result. `leaves`, `made`: what the layer was given and what it returned."""

    leaves: list[torch.Tensor]
    made: tuple[torch.Tensor, ...]


_histories: weakref.WeakValueDictionary[int, _History] = weakref.WeakValueDictionary()


def recurrent_layer(
    kind: str, x: Any, states: Sequence[object], params: Sequence[object], biases: bool, bidirectional: bool,
    differentiated: Sequence[bool], batch_sizes: Any,
) -> tuple:  # fmt: skip
    """All steps of one layer, in one direction or both, and its last states; the second is empty where there is one.

    `x`: [length, batch, features]; of packed sequences, whose `batch_sizes` are given, [steps, features].
    `differentiated`: of `x`, the states and the parameters those that gradients are taken of, none where nothing is;
    autograd knows by itself, and the last result is empty.
    """
    packet = getattr(torch.ops.aten, kind)
    given = list(states) if kind == "lstm" else states[0]
    if batch_sizes is None:
        made = packet.input(x, given, list(params), biases, 1, 0.0, False, bidirectional, False)
    else:
        made = packet.data(x, batch_sizes, given, list(params), biases, 1, 0.0, False, bidirectional)
    missing = () if kind == "lstm" else (x.new_empty(0),)
    return *made, *missing, x.new_empty(0, dtype=torch.int64)


def recurrent_layer_backward(
    kind: str, tangents: Sequence[object], x: Any, states: Sequence[Any], params: Sequence[Any], biases: bool,
    bidirectional: bool, history: Any, wanted: Sequence[bool], batch_sizes: Any,
) -> tuple:  # fmt: skip
    """Gradients of `x`, of two states and of eight parameters; those that are not `wanted` (of `x`, the states and the
    parameters that there are) are empty. The layer is run again."""
    given = [x, *states, *params]
    again = torch.is_grad_enabled() and any(each.requires_grad for each in (*given, *tangents))
    with torch.enable_grad():
        leaves = [each.view_as(each) if again and each.requires_grad else each.detach() for each in given]
        for each, is_wanted in zip(leaves, wanted, strict=True):
            if is_wanted and not each.requires_grad:
                each.requires_grad_()
        made = _layer(kind, leaves, len(states), biases, bidirectional, batch_sizes)
    return _gradients(leaves, made, tangents, len(states), wanted, create_graph=again)


def recurrent_layer_below(
    kind: str, x: Any, states: Sequence[Any], params: Sequence[Any], biases: bool, bidirectional: bool,
    differentiated: Sequence[bool], batch_sizes: Any,
) -> tuple:  # fmt: skip
    """`recurrent_layer` in a program, which runs below autograd."""
    if not any(differentiated):
        return recurrent_layer(kind, x, states, params, biases, bidirectional, (), batch_sizes)
    with torch.inference_mode(False), with_autograd(), without_modes(), torch.enable_grad():
        # Programs use the memory of `x` and the states for something else as soon as nobody reads them.
        leaves = [*(each.detach().clone() for each in (x, *states)), *(each.detach() for each in params)]
        for each, is_wanted in zip(leaves, differentiated, strict=True):
            each.requires_grad_(is_wanted)
        made = _layer(kind, leaves, len(states), biases, bidirectional, batch_sizes)
        history = numpy.zeros(1, dtype=numpy.int64).view(_History)
        history.leaves, history.made = leaves, made
        _histories[history.ctypes.data] = history
        missing = [x.new_empty(0)] * (2 - len(states))
        return *(each.detach() for each in made), *missing, torch.from_numpy(history)


def recurrent_layer_backward_below(
    kind: str, tangents: Sequence[object], x: Any, states: Sequence[Any], params: Sequence[Any], biases: bool,
    bidirectional: bool, history: Any, wanted: Sequence[bool], batch_sizes: Any,
) -> tuple:  # fmt: skip
    """`recurrent_layer_backward` in a program: of what the layer left behind, which goes as it is used. Whoever
    differentiates again (`retain_graph=True`) pays for the layer again."""
    with torch.inference_mode(False), with_autograd(), without_modes(), torch.no_grad():
        found = _histories.pop(history.data_ptr(), None) if history.numel() else None
        if found is None:
            made = recurrent_layer_backward(
                kind, tangents, x, states, params, biases, bidirectional, history, wanted, batch_sizes
            )  # fmt: skip
        else:
            leaves, outputs, found.leaves, found.made = found.leaves, found.made, [], ()
            made = _gradients(leaves, outputs, tangents, len(states), wanted)
        return tuple(each.detach() for each in made)


def _layer(
    kind: str, leaves: Sequence[object], states: int, biases: bool, bidirectional: bool, batch_sizes: object
) -> tuple:
    """The result and the last states."""
    x, own, params = leaves[0], leaves[1 : 1 + states], leaves[1 + states :]
    return recurrent_layer(kind, x, own, params, biases, bidirectional, (), batch_sizes)[: 1 + states]


def _gradients(
    leaves: Sequence[Any],
    made: Sequence[object],
    tangents: Sequence[object],
    states: int,
    wanted: Sequence[bool],
    **how: bool,
) -> tuple:
    asked = [each for each, is_wanted in zip(leaves, wanted, strict=True) if is_wanted]
    found = iter(torch.autograd.grad(made, asked, tangents, **how))
    none = leaves[0].new_empty(0)
    gradients = [next(found) if is_wanted else none for is_wanted in wanted]
    count = 1 + states
    return *gradients[:count], *[none] * (2 - states), *gradients[count:], *[none] * (8 - len(wanted) + count)


@functools.cache
def recurrent_operators() -> tuple[OpOverload, OpOverload]:
    """`lampwork::recurrent_layer` and its derivative."""
    from lampwork._torch.library import overload

    return overload("lampwork::recurrent_layer"), overload("lampwork::recurrent_layer_backward")
