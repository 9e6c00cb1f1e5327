"""Recurrent layers as a program's operators: see `lower/recurrent.py` and `capture/record/recurrent.py`."""

from __future__ import annotations

from typing import Any

import torch

from lampwork import _torch


def layer_with_workspace(*args: object) -> Any:
    """`mkldnn_rnn_layer` with the workspace that its derivative needs."""
    with torch.enable_grad():
        return torch.ops.aten.mkldnn_rnn_layer.default(*args)


def layer(*args: Any) -> Any:
    return _torch.recurrent_layer_below(*args)


def layer_backward(*args: Any) -> Any:
    return _torch.recurrent_layer_backward_below(*args)


#: `_torch` is asked in the call: it registers operators when it is first asked for one, 2 ms of a warm start.
OPERATORS = {
    "lampwork::mkldnn_rnn_layer_with_workspace.default": layer_with_workspace,
    "lampwork::recurrent_layer.default": layer,
    "lampwork::recurrent_layer_backward.default": layer_backward,
    "lampwork::pack_padded.default": lambda *args: _torch.pack_padded(*args),
    "lampwork::pad_packed.default": lambda *args: _torch.pad_packed(*args),
    "lampwork::pack_padded_backward.default": lambda *args: _torch.pack_padded_backward(*args),
    "lampwork::pad_packed_backward.default": lambda *args: _torch.pad_packed_backward(*args),
}
