"""Compares training with compiled regions to eager's, on copies of the same module and inputs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

import lampwork

OPTIONS = {"cache": False}


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in a value, depth first; attributes of objects count, as dict values do."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [each for item in value.values() for each in tensors(item)]
    if isinstance(value, (list, tuple)):
        return [each for item in value for each in tensors(item)]
    return [each for item in vars(value).values() for each in tensors(item)] if hasattr(value, "__dict__") else []


def close(left: Any, right: Any, what: str = "") -> None:
    """Raises AssertionError unless both are None, or are alike in values, type, layout and what autograd shows."""
    if left is None or right is None:
        assert left is right, f"{what}: {left} for {right}"
        return
    assert left.dtype == right.dtype and left.shape == right.shape, what
    assert left.stride() == right.stride(), f"{what}: strides {left.stride()} for {right.stride()}"
    assert left.requires_grad == right.requires_grad, f"{what}: requires_grad {left.requires_grad}"
    assert left.is_leaf == right.is_leaf, f"{what}: is_leaf {left.is_leaf}"
    torch.testing.assert_close(
        left.detach(), right.detach(), rtol=2e-4, atol=2e-5, equal_nan=True, msg=lambda m: f"{what}: {m}"
    )


def same_module(left: torch.nn.Module, right: torch.nn.Module) -> None:
    """Parameters, their gradients and buffers are alike."""
    for (name, one), (_, other) in zip(left.named_parameters(), right.named_parameters(), strict=True):
        close(one, other, name)
        close(one.grad, other.grad, f"gradient of {name}")
    for (name, one), (_, other) in zip(left.named_buffers(), right.named_buffers(), strict=True):
        close(one, other, name)


def train(
    module: torch.nn.Module, args: Any, loss_of: Callable[[Any], torch.Tensor], steps: int = 3, **options: Any
) -> Any:
    """`steps` steps of SGD on the compiled module and on an eager copy; compares everything after each.

    Returns the statistics of the compiled one.
    """
    eager = copy.deepcopy(module)
    compiled = lampwork.compile(module, options={**OPTIONS, **options})
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.01) for each in (module, eager)]
    for step in range(steps):
        results = []
        for each, optimizer in zip((compiled, eager), optimizers):
            torch.manual_seed(step)
            optimizer.zero_grad()
            result = each(*args)
            loss_of(result).backward()
            results.append(result)
        for one, other in zip(tensors(results[0]), tensors(results[1]), strict=True):
            close(one, other, f"result in step {step}")
        same_module(module, eager)
        for optimizer in optimizers:
            optimizer.step()
    return lampwork.stats(compiled)


def whole(stats: Any, captures: int = 1) -> None:
    """Everything was compiled as one piece."""
    assert list(stats["fallbacks"]) == [] and list(stats["breaks"]) == [], (stats["fallbacks"], stats["breaks"])
    assert stats["captures"] == captures
