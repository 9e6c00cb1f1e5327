"""A dimension of size 1 had another stride than eager's where a reshape copies: (1, 1) for (32, 1)."""

from __future__ import annotations

import pytest
import torch

import lampwork


def copied(x):
    return x.permute(0, 2, 1).reshape(1, 32)


def flattened(x):
    return (x * 2).transpose(1, 2).flatten(1)


def in_the_middle(x):
    return x.transpose(1, 2).reshape(4, 1, 8), x.transpose(1, 2).reshape(4, 8, 1)


@pytest.mark.parametrize("program", [copied, flattened, in_the_middle])
def test_strides_are_eagers(program):
    x = torch.rand(1, 4, 8)
    mine, expected = lampwork.compile(program, fullgraph=True)(x), program(x)
    pairs = zip(mine, expected, strict=True) if isinstance(expected, tuple) else [(mine, expected)]
    for one, other in pairs:
        assert torch.equal(one, other)
        assert one.stride() == other.stride()
