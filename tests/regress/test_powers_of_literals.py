"""An integer that code generation knows, to a power that it knows: it was left out of the product. Here where a
concatenation with constants is cut into regions, in which they are known."""

from __future__ import annotations

import torch

import lampwork


def test_parts_of_a_concatenation():
    def program(x, y):
        threes, fives = (x.new_full((1 << 16,), number) for number in (3, 5))
        return torch.cat([threes, x, fives, y]) ** 5

    x, y = (torch.arange(1 << 16) % period for period in (7, 11))
    assert torch.equal(lampwork.compile(program)(x, y), program(x, y))
