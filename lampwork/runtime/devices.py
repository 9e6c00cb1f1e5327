"""The devices of a call: whether there is a back end for each, and what to start early where one is a GPU."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType

import torch

from lampwork import _torch
from lampwork.backends import BACKENDS
from lampwork.errors import Diagnostic


def no_back_end(device: str) -> Diagnostic:
    """Why a call with tensors on a device of this type runs eagerly."""
    return Diagnostic(
        "no-back-end",
        f"tensors are on device {device}, which no back end of Lampwork compiles for; the call runs eagerly",
        remedy=f"Supported devices: {', '.join(sorted(BACKENDS))}.",
    )  # fmt: skip


def foreign_device(function: Callable, args: tuple, kwargs: dict) -> str:
    """The first device among arguments and module parameters that has no back end; empty when all have."""
    for device in devices(function, args, kwargs):
        if device.type not in BACKENDS:
            return device.type
    return ""


def start_gpu_compilers(function: Callable, args: tuple, kwargs: dict) -> None:
    """A call on CUDA tensors starts the processes that compile kernels; they get ready while it is captured."""
    for device in devices(function, args, kwargs):
        backend = BACKENDS[device.type]
        if not backend.is_host:
            return backend.launching.prepare(device)


def devices(function: Callable, args: tuple, kwargs: dict) -> list[torch.device]:
    """Those of the arguments and parameters, read without running what a subclass defines for it."""
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    owner = function.__self__ if isinstance(function, MethodType) else function
    if isinstance(owner, torch.nn.Module):
        tensors += owner.parameters()
    with _torch.without_torch_function():
        return [each.device for each in tensors]
