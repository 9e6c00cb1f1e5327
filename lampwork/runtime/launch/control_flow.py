"""Branches and loops as a program's operators: the host runs compiled graphs (see `capture/flow/`).

A branch, and how often a loop runs, is decided by the host, which waits for a device that holds the decision; loops
over rows wait for nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from lampwork import _torch
from lampwork.ir.artifact import CompiledBody


class Runner:
    """One compiled graph. Called with tensors in any strides; its results are fresh.

    What fails in it is raised as what it was: the program around it knows whether the call may run eagerly then.
    """

    def __init__(self, host: Any, body: CompiledBody, rerun: type[Exception]) -> None:
        self.host, self.strides, self.rerun = host, body.strides, rerun

    def __call__(self, inputs: Sequence[torch.Tensor]) -> tuple:
        values = [each if each.stride() == strides else _restrided(each, strides)
                  for each, strides in zip(inputs, self.strides, strict=True)]  # fmt: skip
        try:
            found: tuple = self.host.call(values, None)
        except self.rerun as stop:
            raise stop.__cause__ or stop from None
        return found

    def release(self) -> None:
        self.host.release()


def _restrided(tensor: torch.Tensor, strides: tuple[int, ...] | None) -> torch.Tensor:
    """A copy with these strides (None: row-major); the tensor itself, seen so, where they differ in nothing that is
    stepped over."""
    if strides is None:
        return tensor.contiguous()
    if all(size == 1 or step == wanted for size, step, wanted in zip(tensor.shape, tensor.stride(), strides)):
        return tensor.as_strided(tensor.shape, strides, tensor.storage_offset())
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


runner = Runner


def _operator(name: str) -> str:
    return name.removeprefix("lampwork::").removesuffix(".default")


def runs_bodies(name: str) -> bool:
    """Whether the operator of this name runs graphs."""
    return name.startswith("lampwork::") and _operator(name) in _torch.RUN_CONTROL_FLOW


def bound(name: str, bodies: Mapping[str, Runner]) -> Callable[..., Any]:
    """The operator, which finds the graphs that it is told to run among these."""
    return functools.partial(_torch.RUN_CONTROL_FLOW[_operator(name)], lambda body, inputs: bodies[body](inputs))
