"""oneDNN's LSTM layer as a program's operator: see `lower/recurrent.py`."""

from __future__ import annotations

from typing import Any

import torch


def layer_with_workspace(*args: Any) -> Any:
    """`mkldnn_rnn_layer` with the workspace that its derivative needs."""
    with torch.enable_grad():
        return torch.ops.aten.mkldnn_rnn_layer.default(*args)


OPERATORS = {"lampwork::mkldnn_rnn_layer_with_workspace.default": layer_with_workspace}
