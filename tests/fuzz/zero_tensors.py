"""`call`: an operator, called from a dispatch mode; also of tensors of zeros without memory.

Derivatives may begin with such a tensor (`aten._efficientzerotensor`). From a dispatch mode, PyTorch's sum or product of
one and a plain number reads memory that is not there: the process ends, or on a GPU all that it has to do there.
"""

from __future__ import annotations

from typing import Any

import torch


def call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
    if func in (torch.ops.aten.add.Scalar, torch.ops.aten.mul.Scalar) and args[0]._is_zerotensor():
        x, number, *alpha = args
        like = {"dtype": torch.result_type(x, number), "device": x.device}
        if func is torch.ops.aten.mul.Scalar:
            return torch._efficientzerotensor(x.shape, **like)
        return torch.full(x.shape, number * (alpha[0] if alpha else 1), **like)
    return func(*args, **(kwargs or {}))
