"""Strided parts that begin ahead of a tensor, in the storage that it is a view of."""

from __future__ import annotations

import torch

import lampwork


def test_scatter_to_a_part_that_begins_ahead():
    def program(x, source):
        return torch.as_strided_scatter(x, source, (2, 2), (1, 2), 0) * 2

    x, source = torch.arange(12.0)[1:], torch.full((2, 2), 7.0)
    compiled = lampwork.compile(program, options={"cache": False})
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, source), program(x, source), rtol=0, atol=0)
    assert not lampwork.stats(compiled)["fallbacks"]
