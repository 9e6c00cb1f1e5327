"""Rows with gaps between them, of which there are none, had less than no bytes: a view of them was refused, and what
was placed after them in memory of sizes that vary began too early."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import lampwork
from lampwork.codegen.host_expressions import at_least_nothing
from lampwork.ir.size import Symbol, add, mul


def padded(x):
    return F.pad(torch.combinations(x), (1, 0))


def between(x):
    kept = x[x > 0]
    rows = torch.empty_strided((kept.shape[0], 3), (200, 1))
    rows.copy_(kept[:, None])
    return rows.cumsum(0).sum() + torch.logcumsumexp(x, 0), rows.cumsum(1)


@pytest.mark.parametrize("program", [padded, between])
def test_is_as_in_eager(program):
    compiled = lampwork.compile(program, dynamic=True)
    for numbers in ([0.5, 2.0, -1.0, 3.0], [-0.75], [-1.0, -2.0, -3.0], [1.0, 2.0]):
        found = []
        for function in (program, compiled):
            x = torch.tensor(numbers, requires_grad=True)
            results = function(x)
            results = results if isinstance(results, tuple) else (results,)
            sum(each.sum() for each in results).backward()
            found.append((*results, x.grad))
        for theirs, mine in zip(*found, strict=True):
            assert mine.stride() == theirs.stride()
            torch.testing.assert_close(mine, theirs)
    assert {each.id for each in lampwork.stats(compiled)["fallbacks"]} <= {"assumption-failed"}


def test_bytes_are_never_less_than_none():
    rows = Symbol("s0", 0, 100)
    size = add(mul(add(rows, -1), 2000), 40)
    assert eval(at_least_nothing(size), {"s0": 0, "max": max}) == 0
    assert eval(at_least_nothing(size), {"s0": 3, "max": max}) == 4040
    assert at_least_nothing(mul(rows, 8)) == str(mul(rows, 8))
