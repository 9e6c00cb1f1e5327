"""Recurrent layers of packed sequences: ATen reads the sizes of batches where it loops over them.

What is captured has no memory to read. Most operators that try say so; these, with sizes that vary, read at address
zero. So calls that would read are a break, and run natively between the graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lampwork import _torch
from lampwork.capture.machine import Answer
from lampwork.capture.outside.overlay import Break
from lampwork.capture.record.fake import Fake

#: Which argument holds the sizes of batches; where that is no tensor, it is the call of a sequence that is not packed.
#: `lstm(data, batch_sizes, states, ...)`, but `lstm(x, states, ...)`; `gru(data, batch_sizes, state, params, ...)`, but
#: `gru(x, state, params, ...)`.
_LAYERS = {torch.lstm: 1, torch.gru: 2, torch.rnn_tanh: 2, torch.rnn_relu: 2}


def _unless_packed(native: Any, place: int) -> Callable:
    """The answer for `native`, whose call is one of a packed sequence where argument `place` is a tensor."""

    def answer(world: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) > place and type(args[place]) is Fake and type(args[1]) is Fake:
            reason = f"torch.{native.__name__} reads the sizes of a packed sequence's batches"
            raise Break("operator-error", f"{reason}, which have no contents while the program is being captured")
        return world.call_native(native, args, kwargs)

    return answer


NATIVES: dict[Any, Answer] = {
    **{layer: _unless_packed(layer, place) for layer, place in _LAYERS.items()},
    **{other: _unless_packed(other, 1) for other in _torch.PACKING},
}
