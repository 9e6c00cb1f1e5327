"""Runs a program compiled once at several sizes next to eager."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

import lampwork
from lampwork.ir.guard import Guard, NumberRelation
from lampwork.ir.number import Integer, Leaf, NumberExpr, text


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
    return [relation_texts(entry.artifact.guards) for entry in entries]


def relation_texts(guards: Sequence[Guard]) -> list[str]:
    """The guards on numbers. Sizes are named as in expressions of several, others s0, s1 in the order in which they
    come; floats f0, f1."""
    holds = [guard.test.holds for guard in guards if isinstance(guard.test, NumberRelation)]
    names: dict[Leaf, str] = {}
    pending: list[NumberExpr] = list(holds)
    while pending:
        part = pending.pop()
        pending += part.parts
        if isinstance(part, Integer):
            names |= {leaf: name for name, leaf in part.symbols}
    for leaf in (leaf for each in holds for leaf in each.leaves):
        letter = "f" if leaf.of == "float" else "s"
        free = (name for name in (f"{letter}{index}" for index in itertools.count()) if name not in names.values())
        names[leaf] = names.get(leaf) or next(free)
    return [text(each, names.__getitem__) for each in holds]
