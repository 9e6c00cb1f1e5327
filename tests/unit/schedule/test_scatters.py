"""Scatters go through their rows in order, and through the elements of a row side by side."""

from __future__ import annotations

import pytest
import torch

import lampwork
from lampwork.config import Settings
from lampwork.ir.loops import Loop, Store
from lampwork.ir.target import Target
from lampwork.lower import lower
from lampwork.schedule import schedule
from tests.unit.lower.graphs import functional_graph

aten = torch.ops.aten
TARGET = Target(threads=2)


def scatter_loops(function, *arguments):
    """Kinds of the loops around the store of the last kernel, outermost first."""
    program = schedule(lower(functional_graph(function, arguments), Settings()), Settings(), TARGET)
    found, body = [], program.kernels[-1].body
    while True:
        loop = next(statement for statement in body if isinstance(statement, (Loop, Store)))
        if isinstance(loop, Store):
            return found
        found.append((loop.kind, loop.axis.extent))
        body = loop.body


def test_rows_are_added_side_by_side():
    g, at, x = torch.randn(100, 64), torch.randint(0, 50, (100,)), torch.randn(50, 64)
    assert scatter_loops(lambda x, at, g: aten.index_add(x * 2, 0, at, g), x, at, g) == [
        ("serial", 100),
        ("vector", 64),
    ]


def test_columns_stay_in_order():
    """Along the index itself two places may be one element."""
    g, at, x = torch.randn(64, 100), torch.randint(0, 50, (100,)), torch.randn(64, 50)
    kinds = scatter_loops(lambda x, at, g: aten.index_add(x * 2, 1, at, g), x, at, g)
    assert all(kind == "serial" for kind, _ in kinds)


CASES = {
    "rows": lambda x, at, g: aten.index_add(x, 0, at, g),
    "of one row each": lambda x, at, g: aten.scatter_add(x, 0, at[:, None].expand(-1, g.shape[1]), g),
    "each its own": lambda x, at, g: aten.scatter_add(x, 0, (at[:, None] + torch.arange(g.shape[1])) % len(x), g),
    "embedding": lambda x, at, g: aten.embedding_dense_backward(g, at, x.shape[0], -1, False),
    "embedding with padding": lambda x, at, g: aten.embedding_dense_backward(g, at, x.shape[0], 3, False),
    "sequences": lambda x, at, g: aten.embedding_dense_backward(
        g.view(5, -1, g.shape[1]), at.view(5, -1), x.shape[0], -1, False
    ),
}


@pytest.mark.parametrize("width", [1, 5, 16, 70, 300])
@pytest.mark.parametrize("name", CASES)
def test_like_eager(name, width):
    x, at, g = torch.randn(7, width), torch.randint(0, 7, (200,)), torch.randn(200, width)
    function = CASES[name]
    with torch.no_grad():
        found = lampwork.compile(function, options={"cache": False})(x, at, g)
    torch.testing.assert_close(found, function(x, at, g), rtol=1e-4, atol=1e-4)


def test_the_last_write_stays():
    """Eager leaves open which; here it is the last, for any number of threads."""
    x, at, g = torch.randn(7, 70), torch.randint(0, 7, (200,)), torch.randn(200, 70)
    expected = x.clone()
    for place, row in zip(at, g):
        expected[place] = row
    with torch.no_grad():
        found = lampwork.compile(lambda x, at, g: aten.index_put(x, [at], g), options={"cache": False})(x, at, g)
    assert torch.equal(found, expected)
