"""Programs and their compiled counterparts give the same values in the same memory layouts, or the same error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import lampwork


def outcome(program: Callable, x: torch.Tensor) -> Any:
    """The results, and what the random number generator gives next; or the type of the error."""
    torch.manual_seed(0)
    try:
        results = program(x)
    except Exception as error:
        return type(error)
    return [*(results if isinstance(results, tuple) else (results,)), torch.rand(3)]


def agree(program: Callable, x: torch.Tensor, dynamic: bool | None, **close: Any) -> None:
    """`close`: how close values must be, as `torch.testing.assert_close` takes it."""
    expected = outcome(program, x)
    found = outcome(lampwork.compile(program, dynamic=dynamic, options={"cache": False}), x)
    if isinstance(expected, type):
        assert found is expected
        return
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours.dtype, ours.shape, ours.stride()) == (theirs.dtype, theirs.shape, theirs.stride())
        torch.testing.assert_close(ours, theirs, equal_nan=True, **close)
