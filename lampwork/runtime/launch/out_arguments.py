"""Calls of ATen with `out=` leave the tensors that they are given where they are, and as they are, or it is an error.

    op_mm_out, = PLAIN if lease.seen == (s0,) else CHECKED

The host text plans the result of a call from a rule of shapes. Given a tensor of another shape, ATen makes that larger
or smaller, writes over what lies beside it, and may move all planned memory. So the first calls on a lease, and those
after its sizes have changed, compare; what ATen gives depends on sizes alone, so later calls need not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


class ResultMoved(RuntimeError):
    """An operator has given its `out=` tensor another shape, or other memory, than was planned."""


def memory_of(*tensors: torch.Tensor) -> list[tuple]:
    """Where tensors lie, and how. (The storage's Python object would own the storage, too.)"""
    return [(each.data_ptr(), tuple(each.shape), each.stride()) for each in tensors]


def unmoved(name: str, before: list[tuple], *tensors: torch.Tensor) -> None:
    """Raises `ResultMoved` where the operator `name` has moved tensors that it was given for its results."""
    now = memory_of(*tensors)
    if now != before:
        raise ResultMoved(f"{name} moved what it was given for its result: {before} before, {now} after")


def checked(calls: Sequence[Callable[..., object]], which: Sequence[tuple[str, Sequence[str]]]) -> tuple:
    """`calls`, each of which raises `ResultMoved` where it moves what it writes to. `which`: their names, and the names
    of their arguments that are memory for results."""
    return tuple([_checked(call, *each) for call, each in zip(calls, which, strict=True)])


def _checked(call: Callable[..., object], name: str, outs: Sequence[str]) -> Callable[..., object]:
    def compared(*args: Any, **kwargs: Any) -> Any:
        given = [kwargs[out] for out in outs]
        before = memory_of(*given)
        returned = call(*args, **kwargs)
        unmoved(name, before, *given)
        return returned

    return compared
