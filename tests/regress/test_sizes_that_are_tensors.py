"""Sizes that are tensors of one element, of a program with sizes that vary: what native code raises for that was taken for
an error of the program's."""

from __future__ import annotations

import torch
from torch.nn import functional as F

import lampwork


def test_a_break_that_says_why():
    def program(x, mask):
        heights = mask[:, 0].sum(1)[:, 0]
        return torch.cat([F.interpolate(x[:1], size=(each, each)) for each in heights])

    compiled = lampwork.compile(program, dynamic=True)
    for number in (2, 3, 4):
        x, mask = torch.randn(number, 3, 6, 6), torch.ones(number, 1, 5, 5, dtype=torch.long)
        assert torch.equal(compiled(x, mask), program(x, mask))
    assert {each.diagnostic.id for each in lampwork.stats(compiled)["breaks"]} <= {"data-dependent", "opaque-value"}
