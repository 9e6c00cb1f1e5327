"""Functions that leave a region and whose attributes lead back to them: writing one down never ended."""

from __future__ import annotations

import torch

import lampwork


def itself(x):
    def inner(y):
        return y + 1

    inner.me = inner
    inner.twice = x * 2
    return inner


def through_others(x):
    def inner(y):
        return y + 1

    def outer(y):
        return inner(y) * 2

    outer.__wrapped__ = inner
    inner.table = {"outer": outer, "x": x + 1}
    return inner, [outer]


def disabled_inside(x):
    def inner(y):
        return y.sin()

    return torch.compiler.disable(inner)(x) + 1


def test_cycles():
    x = torch.arange(3.0)
    found = lampwork.compile(itself, options={"cache": False})(x)
    assert found.me is found and torch.equal(found.twice, x * 2)
    inner, (outer,) = lampwork.compile(through_others, options={"cache": False})(x)
    assert inner.table["outer"] is outer and outer.__wrapped__ is inner
    assert torch.equal(outer(x), (x + 1) * 2) and torch.equal(inner.table["x"], x + 1)


def test_disabling_inside():
    x = torch.arange(3.0)
    compiled = lampwork.compile(disabled_inside, options={"cache": False})
    for _ in range(2):
        assert torch.equal(compiled(x), x.sin() + 1)
