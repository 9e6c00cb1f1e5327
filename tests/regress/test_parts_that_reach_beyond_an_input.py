"""`as_strided` of one of several views that an operator gives (`chunk`) reaches beyond an input that is written."""

from __future__ import annotations

import pytest
import torch

import lampwork


def chunked(x):
    x *= 2
    first, _ = x.chunk(2)
    return first.as_strided((2, 3), (3, 1), 0) * 1


def split(x):
    _, second = x.split(1)
    x.mul_(2)
    return second.as_strided((3,), (1,), 0) + 1


def unbound(x):
    part = x.unbind(0)[1]
    part.add_(1)
    return part.as_strided((2, 3), (3, 1), 0)


@pytest.mark.parametrize("program", [chunked, split, unbound])
def test_what_lies_in_gaps(program):
    compiled = lampwork.compile(program)
    seen = []
    for function in (program, compiled):
        memory = torch.arange(8.0)
        seen.append((function(memory.as_strided((2, 2), (4, 1))).clone(), memory))
    torch.testing.assert_close(seen[1], seen[0], rtol=0, atol=0)
    assert not lampwork.stats(compiled)["fallbacks"]
