"""Our operators for a recurrent layer whose length and batch may vary: ATen's own layer, and its derivative.

ATen's layers are written in terms of other operators, a few for each step of the sequence, which no graph of varying
lengths can hold.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from lampwork._torch.modes import with_autograd, without_modes

#: Gates of the kinds of layer: how many times the size of the state the weights have rows.
KINDS = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}

FORWARD = (
    "recurrent_layer(str kind, Tensor x, Tensor[] states, Tensor[] params, bool biases, bool bidirectional)"
    " -> (Tensor, Tensor, Tensor)"
)
BACKWARD = (
    "recurrent_layer_backward(str kind, Tensor[] tangents, Tensor x, Tensor[] states, Tensor[] params, bool biases, "
    "bool bidirectional, bool[] wanted) -> (" + ", ".join(["Tensor"] * 11) + ")"
)


def recurrent_layer(
    kind: str, x: Any, states: Sequence[Any], params: Sequence[Any], biases: bool, bidirectional: bool
) -> tuple:
    """All steps of one layer, in one direction or both, and its last states; the second is empty where there is one.

    `x`: [length, batch, features].
    """
    packet = getattr(torch.ops.aten, kind)
    if kind == "lstm":
        return packet.input(x, list(states), list(params), biases, 1, 0.0, False, bidirectional, False)
    made = packet.input(x, states[0], list(params), biases, 1, 0.0, False, bidirectional, False)
    return *made, x.new_empty(0)


def recurrent_layer_backward(
    kind: str, tangents: Sequence[Any], x: Any, states: Sequence[Any], params: Sequence[Any], biases: bool,
    bidirectional: bool, wanted: Sequence[bool],
) -> tuple:  # fmt: skip
    """Gradients of `x`, of two states and of eight parameters; those that are not `wanted` (of `x`, the states and the
    parameters that there are) are empty. The layer is run again: what its steps leave behind is not kept."""
    given = [x, *states, *params]
    again = torch.is_grad_enabled() and any(each.requires_grad for each in (*given, *tangents))
    with torch.enable_grad():
        leaves = [each.view_as(each) if again and each.requires_grad else each.detach() for each in given]
        for each, is_wanted in zip(leaves, wanted, strict=True):
            if is_wanted and not each.requires_grad:
                each.requires_grad_()
        made = recurrent_layer(
            kind, leaves[0], leaves[1 : 1 + len(states)], leaves[1 + len(states) :], biases, bidirectional
        )
        asked = [each for each, is_wanted in zip(leaves, wanted, strict=True) if is_wanted]
        found = iter(torch.autograd.grad(made[: len(tangents)], asked, tangents, create_graph=again))
    none = x.new_empty(0)
    gradients = [next(found) if is_wanted else none for is_wanted in wanted]
    count = 1 + len(states)
    missing = [none] * (2 - len(states))
    return *gradients[:count], *missing, *gradients[count:], *[none] * (8 - len(params))


def recurrent_layer_backward_below(*args: Any) -> tuple:
    """`recurrent_layer_backward` in a program, which runs below autograd."""
    with torch.inference_mode(False), with_autograd(), without_modes(), torch.no_grad():
        return tuple(each.detach() for each in recurrent_layer_backward(*args))


@functools.cache
def recurrent_operators() -> tuple[Any, Any]:
    """`lampwork::recurrent_layer` and its derivative."""
    from lampwork._torch.library import overload

    return overload("lampwork::recurrent_layer"), overload("lampwork::recurrent_layer_backward")
