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


OPERATORS = {
    "lampwork::mkldnn_rnn_layer_with_workspace.default": layer_with_workspace,
    "lampwork::recurrent_layer.default": layer,
    "lampwork::recurrent_layer_backward.default": layer_backward,
    "lampwork::pack_padded.default": _torch.pack_padded,
    "lampwork::pad_packed.default": _torch.pad_packed,
    "lampwork::pack_padded_backward.default": _torch.pack_padded_backward,
    "lampwork::pad_packed_backward.default": _torch.pad_packed_backward,
}
