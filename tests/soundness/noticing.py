"""`follows`: the answers of a compiled function follow a change between two calls, as eager's do."""

from __future__ import annotations

from collections.abc import Callable

import torch

import lampwork


def x4() -> torch.Tensor:
    return torch.arange(4.0) + 1


def follows(program: Callable, before: tuple, after: tuple | None = None, change: Callable | None = None) -> None:
    """Captures `program(*before)`, makes the change, calls with `after` (`before` if None) and compares with eager.
    The change must show in eager's answer: else the case says nothing."""
    compiled = lampwork.compile(program, options={"cache": False})
    for _ in range(2):
        first = compiled(*before)
    assert torch.equal(first, program(*before))
    assert lampwork.stats(compiled)["captures"], "nothing was captured"
    if change is not None:
        change()
    after = before if after is None else after
    expected = program(*after)
    assert not (expected.shape == first.shape and torch.equal(expected, first)), "the change does not show"
    found = compiled(*after)
    assert torch.equal(found, expected), f"{found} instead of {expected}"
