"""A saved tensor that the caller writes to is looked at only where a gradient that he asks for is computed with it: all
results of a compiled part have one node, which refused to run where the node of another result would have in eager."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork


@torch.compiler.disable
def apart():
    pass


def turned(x, y):
    left, right = F.softmin(x, 0), x.acos()
    apart()
    left.unsqueeze_(0)
    return left, right


def written(x, y):
    left, right = x.exp(), x.acos()
    apart()
    left.zero_()
    return left, right


def factor(x, y):
    left, right = x.log() * y, x.sin()
    apart()
    y.zero_()
    return left, right


def divisor(x, y):
    left, right = x / y, x.sin()
    apart()
    y.add_(1)
    return left, right


def both(x, y):
    shared = x.exp()
    left, right = shared * y, shared + 1
    apart()
    shared.mul_(2)
    return left, right


def views(x, y):
    left, right = x.exp(), x.sin()
    apart()
    left[:1].mul_(y[:1])
    return left, right


@pytest.mark.parametrize("wanted", [(0,), (1,), (0, 1)], ids=["left", "right", "both"])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", [turned, written, factor, divisor, both, views])
def test_eager_decides(program, dynamic, wanted):
    compiled = lampwork.compile(program, dynamic=dynamic, options={"cache": False})
    for size in (3, 4):
        found = []
        for function in (program, compiled):
            x = torch.linspace(0, 0.5, size).requires_grad_()
            results = function(x, torch.full((size,), 3.0))
            try:
                sum(results[index].sum() for index in wanted).backward()
                found.append(x.grad)
            except RuntimeError as error:
                assert "modified by an inplace operation" in str(error)
                found.append(None)
        torch.testing.assert_close(*found, equal_nan=True)
    # A part that turns a tensor of another part around is eager's.
    assert {each.diagnostic.id for each in lampwork.stats(compiled)["fallbacks"]} <= {"needs-grad"}
