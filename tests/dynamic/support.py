"""Runs a program compiled once at several sizes next to eager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import lampwork


def compare(actual: Any, expected: Any, **tolerances: float) -> None:
    """Same structure, types, metadata and values. `tolerances`: `rtol` and `atol`, PyTorch's own where not given."""
    assert type(actual) is type(expected), (type(actual), type(expected))
    if isinstance(expected, torch.Tensor):
        assert own_steps(actual) == own_steps(expected), (actual.shape, actual.stride(), expected.stride())
        torch.testing.assert_close(actual, expected, equal_nan=True, **tolerances)
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected):
            compare(one, other, **tolerances)
    elif isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key in expected:
            compare(actual[key], expected[key], **tolerances)
    else:
        assert actual == expected


def own_steps(tensor: torch.Tensor) -> list[int]:
    """The strides that lead anywhere: not those of dimensions of one element, nor of tensors without any."""
    return [step for size, step in zip(tensor.shape, tensor.stride()) if size > 1 and tensor.numel()]


def copies(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone(memory_format=torch.preserve_format) if value.dim() else value.clone()
    if isinstance(value, (list, tuple)):
        return type(value)(copies(each) for each in value)
    return value


def check(
    program: Callable, calls: Sequence[Sequence[Any]], captures: int = 1, dynamic: bool | None = True
) -> dict[str, Any]:
    """`program` compiled gives eager's results and effects on every call, with at most `captures` captures.

    Returns the function's statistics.
    """
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    with torch.no_grad():
        for args in calls:
            mine, theirs = copies(args), copies(args)
            compare(compiled(*mine), program(*theirs))
            compare(mine, theirs)
    stats = lampwork.stats(compiled)
    assert not stats["fallbacks"], stats["fallbacks"]
    assert stats["captures"] <= captures, (stats["captures"], why(compiled, calls))
    return stats


def why(compiled: Any, calls: Sequence[Sequence[Any]]) -> list[str]:
    """Why each call misses the first entry that was made."""
    entry = compiled.__lampwork__.entries[-1]
    with torch.no_grad():
        found = [entry.why_missed(compiled.__lampwork__.function, tuple(args), {}) for args in calls]
    return [each for each in found if each]


def relations(compiled: Any) -> list[list[str]]:
    """The guards on sizes of each entry, most recently used first."""
    entries = compiled.__lampwork__.entries
    return [[g.test.text for g in entry.artifact.guards if hasattr(g.test, "text")] for entry in entries]
