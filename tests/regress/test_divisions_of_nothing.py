"""Whole numbers divided by 0 raised though there were none, where how many there are depends on contents."""

from __future__ import annotations

import pytest
import torch

import lampwork

DIVISIONS = {
    "floor_divide": torch.floor_divide, "remainder": torch.remainder, "fmod": torch.fmod,
    "in place": lambda a, b: a.floor_divide_(b), "rounded": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
}  # fmt: skip


@pytest.mark.parametrize("name", DIVISIONS)
@pytest.mark.parametrize(
    "divisor", [torch.tensor(0), torch.tensor([0]), torch.tensor([[0]])], ids=["0-d", "1-d", "2-d"]
)
def test_as_many_as_contents_say(name, divisor):
    compiled = lampwork.compile(lambda x, y: DIVISIONS[name](torch.nonzero(x), y))
    nothing = torch.zeros(5, dtype=torch.uint8)
    assert compiled(nothing, divisor).shape == (0, 1)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(nothing + 1, divisor)
    assert compiled(nothing + 1, divisor + 2).shape == (5, 1)


@pytest.mark.parametrize("name", DIVISIONS)
def test_as_many_rows_as_a_call_has(name):
    compiled = lampwork.compile(lambda x, y: DIVISIONS[name](x + 0, y), dynamic=True)
    for rows in (3, 0, 5):
        x = torch.arange(2 * rows).view(rows, 2)
        assert torch.equal(compiled(x, torch.tensor([3, 2])), DIVISIONS[name](x + 0, torch.tensor([3, 2])))
    assert compiled(x[:0], torch.tensor([0, 2])).shape == (0, 2)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(x, torch.tensor([0, 2]))
