"""A guard that looked for a key in a `defaultdict` put it there: an optimizer's state had entries nobody made."""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch

import lampwork
from lampwork.runtime.guards import interpreter


def test_reading_makes_no_key() -> None:
    state: defaultdict[str, dict] = defaultdict(dict)
    with pytest.raises(KeyError):
        interpreter.item(state, "a")
    assert not state


def test_a_guard_makes_no_key() -> None:
    state: defaultdict[str, dict] = defaultdict(dict)

    def program(x: torch.Tensor, name: str) -> torch.Tensor:
        if name in state:
            return x * state[name]["by"]
        return x + 1

    compiled = lampwork.compile(program)
    x = torch.ones(3)
    state["a"]["by"] = 3.0
    assert torch.equal(compiled(x, "a"), x * 3)
    state.clear()
    assert torch.equal(compiled(x, "a"), x + 1)
    assert not state
