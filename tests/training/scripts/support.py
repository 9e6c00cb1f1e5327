"""What scripts share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


def script(function: Callable[[Callable], dict[str, Any]]) -> Callable[[Callable], dict[str, Any]]:
    function.is_script = True  # type: ignore[attr-defined]
    return function


def state(*modules: nn.Module) -> list[torch.Tensor]:
    """Parameters and buffers."""
    return [value.detach().clone() for module in modules for value in module.state_dict().values()]


def mlp(*widths: int, activation: Callable[[], nn.Module] = nn.GELU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for one, other in zip(widths, widths[1:]):
        layers += [nn.Linear(one, other), activation()]
    return nn.Sequential(*layers[:-1])
