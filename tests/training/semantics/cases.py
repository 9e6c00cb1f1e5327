"""The table of cases: small programs on what autograd lets a program do, and how one is written down.

A case is a function without arguments that returns `(function or module, inputs)` or `(..., inputs, use)`. `use(results,
inputs)` is what the caller does with the results, gradients included; what it returns is compared, too. Without it,
gradients of all results that require grad are taken together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

TABLE: dict[str, Callable[[], tuple]] = {}


def case(make: Callable[[], tuple]) -> Callable[[], tuple]:
    assert make.__name__ not in TABLE, make.__name__
    TABLE[make.__name__] = make
    return make


def leaf(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return data(*shape, seed=seed, dtype=dtype).requires_grad_()


def data(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in a value, depth first."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [each for item in value.values() for each in tensors(item)]
    if isinstance(value, (list, tuple)):
        return [each for item in value for each in tensors(item)]
    if dataclasses.is_dataclass(value):
        return [each for field in dataclasses.fields(value) for each in tensors(getattr(value, field.name))]
    return []


def backward(results: Any, inputs: Any = None) -> None:
    """Gradients of all results together, with directions that tell elements apart."""
    found = [each for each in tensors(results) if each.requires_grad]
    if found:
        torch.autograd.backward(found, [torch.ones_like(each).cumsum(-1) / 7 if each.dim() else None for each in found])


def raised(function: Callable[[], Any]) -> str:
    """The kind of what the function raises, and the beginning of its text."""
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:60]}"
    return "nothing"
