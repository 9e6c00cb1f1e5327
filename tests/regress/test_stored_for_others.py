"""What other closures of the same code left in the on-disk cache counted towards a function's limit of entries."""

from __future__ import annotations

import torch

import lampwork


def scaled(by: float):
    return lambda x: (x * by).relu() + by


def test_other_closures_take_nothing_from_the_limit() -> None:
    x = torch.randn(7)
    for by in range(1, 6):
        lampwork.compile(scaled(by + 0.5), options={"recompile_limit": 3})(x)
    function = scaled(9.5)
    compiled = lampwork.compile(function, options={"recompile_limit": 3})
    for size in (7, 8, 9):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), function(x))
    found = lampwork.stats(compiled)
    assert not found["fallbacks"], found["fallbacks"]
    assert found["entries"] <= 2
