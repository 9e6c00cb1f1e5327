"""Programs on the CPU: machine code in memory that the host has. Functions that `Backend.launch` names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from lampwork.ir.program import NativeCode
from lampwork.runtime.launch.memory import Lease, LeasePool, new_workspace


def load(native: NativeCode) -> Any:
    from lampwork.runtime.launch.native import LoadedCode

    return LoadedCode(native)


def leases(make: Callable[[torch.Tensor], Lease], workspace_bytes: int, device: str) -> LeasePool:
    """The memory of calls: a workspace each."""
    return LeasePool(lambda: make(new_workspace(workspace_bytes)))


def host_names(device: str) -> Mapping[str, object]:
    return {}


def on_device(call: Callable[..., tuple], device: str) -> Callable[..., tuple]:
    return call


def settle(device: str) -> None:
    """Memory that was written is there."""


def generator_states(device: str) -> tuple[torch.Tensor, ...]:
    return ()


def restore_generators(states: tuple[torch.Tensor, ...], device: str) -> None:
    pass


def is_capturing() -> bool:
    return False


def graphs(device: str) -> None:
    """There are no graphs of launches."""


def ready(device: str) -> None:
    pass


def prepare(device: torch.device) -> None:
    pass
